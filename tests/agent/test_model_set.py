"""Who thinks: what is changed at once, and what may still come to an end after it."""

import asyncio

from ecoshell.agent.model_set import ActiveModels


class Model:
    def __init__(self):
        self.leaving = asyncio.Event()

    async def aclose(self):
        self.leaving.set()
        await asyncio.Event().wait()

    async def warm(self):
        pass


class Set:
    def __init__(self, mode):
        self.model = Model()
        self.models, self.players = (self.model,), {}
        self.mode = type("Mode", (), {"name": mode})()


class Factory:
    def make(self, name, mode="single", **more):
        return Set(mode)


async def test_another_mode_is_had_whole_though_the_model_before_it_does_not_let_go():
    models = ActiveModels(Factory(), "x", mode="single")
    leaving = models.current.model.leaving
    changing = asyncio.create_task(models.change(mode="umi"))
    await asyncio.wait_for(leaving.wait(), 240)
    assert (models.mode, models.current.mode.name) == ("umi", "umi")
    changing.cancel()
    await asyncio.wait([changing])
    assert (models.mode, models.current.mode.name) == ("umi", "umi")
