-- The secrets that the webhooks of a tenant are signed with. All of them live; at most two do, since each has a number of
-- its own.
CREATE TABLE webhook_secrets (
    tenant      TEXT    NOT NULL,
    number      INTEGER NOT NULL CHECK (number IN (1, 2)),
    id          BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    last_digits TEXT    NOT NULL, -- the end of its text, to tell it from others
    secret      BLOB    NOT NULL,
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, secret)
) STRICT, WITHOUT ROWID;
