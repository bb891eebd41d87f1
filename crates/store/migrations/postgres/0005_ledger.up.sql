-- What workers have done, each entry written in the transaction of its effect: a run that comes again finds it and does
-- nothing. Kept here for workers whose effects are in this database; see `Ledger` in crates/client for others.
CREATE TABLE ledger (
    tenant      text   COLLATE "C" NOT NULL,
    key         text   COLLATE "C" NOT NULL, -- the task's id, or that and a step of it
    recorded_at bigint NOT NULL,
    expires_at  bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX ledger_expiring ON ledger (expires_at);
