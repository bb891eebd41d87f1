-- Tenants that an operator has created. Any name may have tasks; only these have weights, limits and keys.
CREATE TABLE tenants (
    name       TEXT    NOT NULL PRIMARY KEY,
    weight     INTEGER NOT NULL,
    limits     TEXT    NOT NULL, -- JSON
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- API keys. Of the secret there is a digest only.
CREATE TABLE api_keys (
    id           TEXT    NOT NULL PRIMARY KEY, -- the UUID in 32 hex digits
    tenant       TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    scope        TEXT    NOT NULL, -- JSON
    digest       BLOB    NOT NULL CHECK (length(digest) = 32),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,          -- NULL: never
    last_used_at INTEGER,          -- NULL: never
    is_first     INTEGER           -- 1 for the one that was made while there was no administrator
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);
CREATE UNIQUE INDEX api_keys_first ON api_keys (is_first) WHERE is_first IS NOT NULL;

-- Nonces of signed requests, each good once.
CREATE TABLE nonces (
    key_id     TEXT    NOT NULL,
    nonce      TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (key_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE INDEX nonces_by_end ON nonces (expires_at);
