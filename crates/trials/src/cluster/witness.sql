-- Records every change of a holder and every write to a task, in order. A node that takes a term
-- locks the term's row, and a node that writes under a term has locked that row before. So the
-- counter has the true order.
CREATE SCHEMA trials;
CREATE SEQUENCE trials.moment;
CREATE TABLE trials.terms (
    moment   bigint DEFAULT nextval('trials.moment') PRIMARY KEY,
    resource text NOT NULL,
    holder   bigint,
    term     bigint NOT NULL
);
CREATE TABLE trials.writes (
    moment  bigint DEFAULT nextval('trials.moment') PRIMARY KEY,
    task    uuid   NOT NULL,
    version bigint NOT NULL,
    lane    bigint NOT NULL
);

CREATE FUNCTION trials.partition_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO trials.terms (resource, holder, term) VALUES ('partition ' || NEW.number, NEW.owner, NEW.term);
    RETURN NULL;
END
$$;
CREATE FUNCTION trials.lease_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO trials.terms (resource, holder, term) VALUES (NEW.name, NEW.holder, NEW.term);
    RETURN NULL;
END
$$;
CREATE FUNCTION trials.task_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO trials.writes (task, version, lane) VALUES (NEW.id, NEW.version, NEW.lane);
    RETURN NULL;
END
$$;

CREATE TRIGGER trials_made AFTER INSERT ON punctual.partitions
    FOR EACH ROW EXECUTE FUNCTION trials.partition_seen();
CREATE TRIGGER trials_changed AFTER UPDATE ON punctual.partitions
    FOR EACH ROW WHEN ((OLD.owner, OLD.term) IS DISTINCT FROM (NEW.owner, NEW.term))
    EXECUTE FUNCTION trials.partition_seen();
CREATE TRIGGER trials_made AFTER INSERT ON punctual.leases
    FOR EACH ROW EXECUTE FUNCTION trials.lease_seen();
CREATE TRIGGER trials_changed AFTER UPDATE ON punctual.leases
    FOR EACH ROW WHEN ((OLD.holder, OLD.term) IS DISTINCT FROM (NEW.holder, NEW.term))
    EXECUTE FUNCTION trials.lease_seen();
CREATE TRIGGER trials_written AFTER INSERT OR UPDATE ON punctual.tasks
    FOR EACH ROW EXECUTE FUNCTION trials.task_seen();
CREATE TRIGGER trials_written AFTER INSERT ON punctual.history
    FOR EACH ROW EXECUTE FUNCTION trials.task_seen();
