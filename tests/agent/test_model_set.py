"""Switching models and modes takes effect at once, even while the old model still closes."""

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


async def test_a_mode_switch_completes_though_the_old_model_does_not_close():
    models = ActiveModels(Factory(), "x", mode="single")
    leaving = models.current.model.leaving
    changing = asyncio.create_task(models.change(mode="umi"))
    await asyncio.wait_for(leaving.wait(), 240)
    assert (models.mode, models.current.mode.name) == ("umi", "umi")
    changing.cancel()
    await asyncio.wait([changing])
    assert (models.mode, models.current.mode.name) == ("umi", "umi")
