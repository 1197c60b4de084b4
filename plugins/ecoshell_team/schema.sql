-- The shared ledger, version 1. Amounts are integer nano-dollars; days and months follow the server's clock, in UTC.
-- Members can only read their own rows. They change data through functions, which identify them by session_user.
-- Locks are taken in a fixed order: the row of a lease, then the rows of totals by key.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ecoshell_member') THEN CREATE ROLE ecoshell_member NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ecoshell_admin') THEN CREATE ROLE ecoshell_admin NOLOGIN; END IF;
    IF NOT pg_has_role(current_user, 'ecoshell_admin', 'member') THEN GRANT ecoshell_admin TO CURRENT_USER; END IF;
END $$;

CREATE SCHEMA ecoshell;
SET LOCAL search_path = ecoshell, pg_temp;

CREATE TABLE members (person text PRIMARY KEY, team text NOT NULL DEFAULT '');
CREATE TABLE caps (
    scope text, period text CHECK (period IN ('day', 'month')), nano bigint NOT NULL CHECK (nano > 0),
    PRIMARY KEY (scope, period)
);
CREATE TABLE totals (
    scope text, at text, spent bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
    held bigint NOT NULL DEFAULT 0 CHECK (held >= 0), leased bigint NOT NULL DEFAULT 0 CHECK (leased >= 0),
    PRIMARY KEY (scope, at)
);
CREATE TABLE leases (
    id text PRIMARY KEY CHECK (length(id) BETWEEN 16 AND 200), person text NOT NULL, team text NOT NULL,
    project text NOT NULL CHECK (length(project) <= 200), model text NOT NULL CHECK (length(model) <= 500),
    day date NOT NULL, at timestamptz NOT NULL DEFAULT now(), request bigint NOT NULL DEFAULT 0,
    granted bigint NOT NULL DEFAULT 0 CHECK (granted >= 0), spent bigint NOT NULL DEFAULT 0,
    single boolean NOT NULL DEFAULT true, closed boolean NOT NULL DEFAULT false
);
CREATE TABLE entries (
    key text PRIMARY KEY CHECK (length(key) <= 500), lease text REFERENCES leases, person text NOT NULL, team text NOT NULL,
    project text NOT NULL, model text NOT NULL, role text NOT NULL CHECK (length(role) <= 200), day date NOT NULL,
    reconciled boolean NOT NULL, spent bigint CHECK (spent >= 0), calls integer NOT NULL CHECK (calls BETWEEN 0 AND 1),
    input bigint NOT NULL CHECK (input >= 0), cached bigint NOT NULL CHECK (cached >= 0),
    cache_write bigint NOT NULL CHECK (cache_write >= 0), output bigint NOT NULL CHECK (output >= 0),
    reasoning bigint NOT NULL CHECK (reasoning >= 0)
);
CREATE INDEX entries_of_lease ON entries (lease);

CREATE FUNCTION schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

CREATE FUNCTION today() RETURNS date LANGUAGE sql STABLE AS $$SELECT (now() AT TIME ZONE 'UTC')::date$$;

CREATE FUNCTION keys_of(person text, team text, project text, model text, day date)
RETURNS TABLE (scope text, period text, at text) LANGUAGE sql IMMUTABLE AS $$
    SELECT s.scope, p.period, p.at
    FROM (VALUES ('everybody', 'x'), ('team:' || team, team), ('person:' || person, person),
                 ('project:' || project, project), ('model:' || model, model)) AS s (scope, name),
         (VALUES ('day', to_char(day, 'YYYY-MM-DD')), ('month', to_char(day, 'YYYY-MM'))) AS p (period, at)
    WHERE s.name <> '' ORDER BY s.scope, p.at
$$;

-- The amount that a lease counts for in addition to its spending.
CREATE FUNCTION open_of(l leases) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    'SELECT CASE WHEN l.closed THEN 0 ELSE greatest(0, l.granted - l.spent) END';

CREATE FUNCTION lock_totals(person text, team text, project text, model text, day date) RETURNS void LANGUAGE sql AS $$
    INSERT INTO totals (scope, at) SELECT k.scope, k.at FROM keys_of(person, team, project, model, day) k
        ORDER BY k.scope, k.at ON CONFLICT DO NOTHING;
    SELECT FROM totals t JOIN keys_of(person, team, project, model, day) k USING (scope, at)
        ORDER BY t.scope, t.at FOR UPDATE OF t;
$$;

-- Store a lease, and change the locked totals by the difference of the amounts it counts for.
CREATE FUNCTION changed(was leases, l leases) RETURNS void LANGUAGE sql AS $$
    UPDATE leases SET request = l.request, granted = l.granted, spent = l.spent, single = l.single, closed = l.closed
        WHERE id = l.id;
    UPDATE totals t SET spent = t.spent + l.spent - was.spent,
        held = t.held + CASE WHEN l.single THEN open_of(l) ELSE 0 END - CASE WHEN was.single THEN open_of(was) ELSE 0 END,
        leased = t.leased + CASE WHEN l.single THEN 0 ELSE open_of(l) END - CASE WHEN was.single THEN 0 ELSE open_of(was) END
    FROM keys_of(l.person, l.team, l.project, l.model, l.day) k
    WHERE (t.scope, t.at) = (k.scope, k.at) AND (open_of(was), was.spent, was.single) <> (open_of(l), l.spent, l.single);
$$;

-- Return and lock a lease of the caller.
CREATE FUNCTION own_lease(wanted text) RETURNS leases LANGUAGE plpgsql AS $$
DECLARE l leases;
BEGIN
    SELECT * INTO l FROM leases WHERE id = wanted FOR UPDATE;
    IF FOUND AND l.person <> session_user THEN
        RAISE insufficient_privilege USING MESSAGE = 'this lease is somebody else''s';
    END IF;
    RETURN l;
END $$;

-- Store calls and add their spending to the lease. Reconciled calls do not change.
CREATE FUNCTION reported(l leases, calls jsonb) RETURNS leases LANGUAGE plpgsql AS $$
DECLARE was bigint; now_spent bigint; keys text[];
BEGIN
    SELECT array_agg(l.id || '/' || (c->>'entry')) INTO keys FROM jsonb_array_elements(calls) c;
    IF keys IS NULL THEN RETURN l; END IF;
    SELECT coalesce(sum(spent), 0) INTO was FROM entries WHERE key = ANY (keys);
    INSERT INTO entries SELECT l.id || '/' || c.entry, l.id, l.person, l.team, l.project, l.model, c.role, l.day,
            c.reconciled, c.spent, c.calls, c.input, c.cached, c.cache_write, c.output, c.reasoning
        FROM jsonb_to_recordset(calls) AS c (entry bigint, role text, reconciled boolean, spent bigint, calls integer,
            input bigint, cached bigint, cache_write bigint, output bigint, reasoning bigint)
    ON CONFLICT (key) DO UPDATE SET reconciled = excluded.reconciled, spent = excluded.spent, input = excluded.input,
        cached = excluded.cached, cache_write = excluded.cache_write, output = excluded.output,
        reasoning = excluded.reasoning
        WHERE excluded.reconciled OR NOT entries.reconciled;
    SELECT coalesce(sum(spent), 0) INTO now_spent FROM entries WHERE key = ANY (keys);
    l.spent := l.spent + now_spent - was;
    RETURN l;
END $$;

CREATE FUNCTION caps_over(person text, team text, project text, model text, day date)
RETURNS TABLE (scope text, period text, nano bigint, spent bigint, held bigint, leased bigint, own bigint) LANGUAGE sql STABLE AS $$
    SELECT c.scope, c.period, c.nano, coalesce(t.spent, 0), coalesce(t.held, 0), coalesce(t.leased, 0),
        CASE WHEN c.scope = 'everybody' OR c.scope = 'team:' || team THEN coalesce(p.spent, 0) END
    FROM keys_of(person, team, project, model, day) k JOIN caps c USING (scope, period)
    LEFT JOIN totals t ON (t.scope, t.at) = (k.scope, k.at)
    LEFT JOIN totals p ON (p.scope, p.at) = ('person:' || person, k.at) ORDER BY c.scope, c.period
$$;

CREATE FUNCTION answer(l leases, over boolean) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('granted', l.granted, 'spent', l.spent, 'single', l.single, 'over', over, 'caps',
        coalesce((SELECT jsonb_agg(c) FROM caps_over(l.person, l.team, l.project, l.model, l.day) c), '[]'))
$$;

-- Store calls and return the caller's lease; an outdated request has no effect.
CREATE FUNCTION record_calls(lease_id text, number bigint, calls jsonb) RETURNS leases LANGUAGE plpgsql AS $$
DECLARE l leases; was leases;
BEGIN
    l := own_lease(lease_id);
    IF l.id IS NULL OR number <= l.request THEN RETURN l; END IF;
    PERFORM lock_totals(l.person, l.team, l.project, l.model, l.day);
    was := l;
    l := reported(l, calls);
    l.request := coalesce(number, l.request);
    PERFORM changed(was, l);
    RETURN l;
END $$;

-- Request or extend a lease. `at_least`, `whole` and `wished` are minimum, needed and preferred totals. If the minimum
-- is not available, nothing is granted. Beyond `whole`, a lease gets at most 1 % of the remainder, and all leases
-- together at most 5 %; amounts too small for another call are not leased. A lease ends with its day, and the next call
-- needs a new one.
CREATE FUNCTION lease(
    lease_id text, number bigint, its_project text, its_model text, at_least bigint, whole bigint, wished bigint, calls jsonb
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
DECLARE l leases; was leases; room bigint; spare bigint;
BEGIN
    INSERT INTO leases (id, person, team, project, model, day)
        SELECT lease_id, session_user, coalesce((SELECT team FROM members WHERE person = session_user), ''),
            its_project, its_model, today() ON CONFLICT DO NOTHING;
    l := record_calls(lease_id, number, calls);
    IF l.request = number AND NOT l.closed AND l.day = today() AND whole > l.granted THEN
        was := l;
        SELECT min(c.nano - c.spent - c.held - c.leased),
               min((c.nano - c.spent - c.held - c.leased) / 20 - c.leased)
            INTO room, spare FROM caps_over(l.person, l.team, l.project, l.model, l.day) c;
        l.granted := greatest(l.granted, l.spent);
        IF room IS NULL THEN
            l.granted := greatest(whole, wished);
            l.single := false;
        ELSIF at_least - l.granted <= room THEN
            spare := least(wished - whole, spare, room / 100, room - (whole - l.granted));
            l.single := spare < at_least - l.spent; -- not enough for another call like those that run
            l.granted := least(whole, l.granted + greatest(0, room)) + CASE WHEN l.single THEN 0 ELSE spare END;
        ELSE
            l.granted := was.granted;
            l.single := true;
        END IF;
        PERFORM changed(was, l);
    END IF;
    RETURN answer(l, l.closed OR l.day <> today() OR l.request <> number);
END $$;

-- Report calls of a lease and return its grant beyond `keep`, or nothing if that is null. Without a number, the shell of
-- the lease has ended.
CREATE FUNCTION settle(lease_id text, number bigint, calls jsonb, keep bigint, close boolean)
RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
DECLARE l leases; was leases;
BEGIN
    l := record_calls(lease_id, number, calls);
    IF l.id IS NOT NULL AND (number IS NULL OR l.request = number) THEN
        was := l;
        l.granted := least(l.granted, greatest(coalesce(keep, l.granted), l.spent));
        l.closed := l.closed OR close;
        PERFORM changed(was, l);
    END IF;
    RETURN answer(l, l.closed);
END $$;

-- Return the caps that currently apply to a call of the caller.
CREATE FUNCTION shares(its_project text, its_model text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
    SELECT coalesce(jsonb_agg(c), '[]') FROM caps_over(session_user::text,
        coalesce((SELECT team FROM members WHERE person = session_user), ''), its_project, its_model, today()) c
$$;

-- Import calls that were made without this ledger, each only once; returns the number of new ones.
CREATE FUNCTION import(its_project text, calls jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
DECLARE e entries; n bigint := 0; its_team text := coalesce((SELECT team FROM members WHERE person = session_user), '');
BEGIN
    FOR e IN INSERT INTO entries SELECT 'import/' || session_user || '/' || c.entry, NULL, session_user, its_team,
                its_project, c.model, c.role, c.day, false, c.spent, c.calls, c.input, c.cached, c.cache_write, c.output,
                c.reasoning
            FROM jsonb_to_recordset(calls) AS c (entry text, model text, role text, day date, spent bigint, calls integer,
                input bigint, cached bigint, cache_write bigint, output bigint, reasoning bigint)
            ON CONFLICT DO NOTHING RETURNING * LOOP
        PERFORM lock_totals(e.person, e.team, e.project, e.model, e.day);
        UPDATE totals t SET spent = t.spent + coalesce(e.spent, 0)
            FROM keys_of(e.person, e.team, e.project, e.model, e.day) k WHERE (t.scope, t.at) = (k.scope, k.at);
        n := n + 1;
    END LOOP;
    RETURN n;
END $$;

-- For administrators.
CREATE FUNCTION set_cap(its_scope text, its_period text, its_nano bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
DECLARE used bigint; its_at text := to_char(today(), CASE its_period WHEN 'day' THEN 'YYYY-MM-DD' ELSE 'YYYY-MM' END);
BEGIN
    INSERT INTO totals (scope, at) VALUES (its_scope, its_at) ON CONFLICT DO NOTHING;
    SELECT spent + held + leased INTO used FROM totals WHERE scope = its_scope AND at = its_at FOR UPDATE;
    IF its_nano IS NULL THEN
        DELETE FROM caps WHERE scope = its_scope AND period = its_period;
    ELSIF used <= its_nano THEN
        INSERT INTO caps VALUES (its_scope, its_period, its_nano)
            ON CONFLICT (scope, period) DO UPDATE SET nano = excluded.nano;
    END IF;
    RETURN used;
END $$;

CREATE FUNCTION add_member(its_person text, its_team text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT ecoshell_member TO %I', its_person);
    INSERT INTO members VALUES (its_person, its_team) ON CONFLICT (person) DO UPDATE SET team = excluded.team;
END $$;

-- End the lease of a lost shell; `took` counts as spent, in a separate entry.
CREATE FUNCTION close_lease(lease_id text, took bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = ecoshell, pg_temp AS $$
DECLARE l leases; was leases; rest bigint;
BEGIN
    SELECT * INTO l FROM leases WHERE id = lease_id AND NOT closed FOR UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    PERFORM lock_totals(l.person, l.team, l.project, l.model, l.day);
    was := l;
    rest := open_of(l);
    INSERT INTO entries VALUES (l.id || '/closed', l.id, l.person, l.team, l.project, l.model, '', l.day,
        true, took, 0, 0, 0, 0, 0, 0);
    l.spent := l.spent + took;
    l.closed := true;
    PERFORM changed(was, l);
    RETURN rest;
END $$;

-- Views for dashboards: administrators see everything, members their own rows.
CREATE VIEW costs WITH (security_barrier) AS
    SELECT person, team, project, model, role, day, spent::numeric / 1000000000 AS spent_usd, spent AS spent_nano,
        calls, input, cached, cache_write, output, reasoning
    FROM ecoshell.entries WHERE person = session_user OR pg_has_role(session_user, 'ecoshell_admin', 'member');
CREATE VIEW open_leases WITH (security_barrier) AS
    SELECT id, person, team, project, model, day, at, single, ecoshell.open_of(l) AS nano
    FROM ecoshell.leases l
    WHERE NOT closed AND (person = session_user OR pg_has_role(session_user, 'ecoshell_admin', 'member'));
CREATE VIEW shared_caps WITH (security_barrier) AS
    SELECT c.scope, c.period, c.nano AS limit_nano, coalesce(t.spent, 0) AS spent_nano, coalesce(t.held, 0) AS held_nano,
        coalesce(t.leased, 0) AS leased_nano
    FROM ecoshell.caps c LEFT JOIN ecoshell.totals t ON t.scope = c.scope AND t.at = to_char(
        ecoshell.today(), CASE c.period WHEN 'day' THEN 'YYYY-MM-DD' ELSE 'YYYY-MM' END)
    WHERE pg_has_role(session_user, 'ecoshell_admin', 'member') OR c.scope IN ('everybody', 'person:' || session_user)
        OR c.scope = (SELECT 'team:' || m.team FROM ecoshell.members m WHERE m.person = session_user);

ALTER TABLE entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE leases ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON entries FOR SELECT TO ecoshell_member USING (person = session_user);
CREATE POLICY own ON leases FOR SELECT TO ecoshell_member USING (person = session_user);
CREATE POLICY every ON entries FOR SELECT TO ecoshell_admin USING (true);
CREATE POLICY every ON leases FOR SELECT TO ecoshell_admin USING (true);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ecoshell FROM PUBLIC;
GRANT USAGE ON SCHEMA ecoshell TO ecoshell_member, ecoshell_admin;
GRANT SELECT ON entries, leases, costs, open_leases, shared_caps TO ecoshell_member, ecoshell_admin;
GRANT EXECUTE ON FUNCTION schema_version, open_of, today, lease, settle, shares, import TO ecoshell_member, ecoshell_admin;
GRANT EXECUTE ON FUNCTION set_cap, add_member, close_lease TO ecoshell_admin;
