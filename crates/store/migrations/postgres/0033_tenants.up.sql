-- Tenants that an operator has created. Any name may have tasks; only these have weights, limits and keys.
CREATE TABLE tenants (
    name       text   COLLATE "C" PRIMARY KEY,
    weight     bigint NOT NULL,
    limits     text   NOT NULL, -- JSON
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);

-- API keys. Of the secret there is a digest only.
CREATE TABLE api_keys (
    id           text   COLLATE "C" PRIMARY KEY, -- the UUID in 32 hex digits
    tenant       text   COLLATE "C" NOT NULL REFERENCES tenants (name) ON DELETE CASCADE,
    name         text   NOT NULL,
    role         text   NOT NULL,
    scope        text   NOT NULL, -- JSON
    digest       bytea  NOT NULL CHECK (length(digest) = 32),
    created_at   bigint NOT NULL,
    expires_at   bigint,          -- NULL: never
    last_used_at bigint,          -- NULL: never
    is_first     bigint           -- 1 for the one that was made while there was no administrator
);

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);
CREATE UNIQUE INDEX api_keys_first ON api_keys (is_first) WHERE is_first IS NOT NULL;

-- Nonces of signed requests, each good once.
CREATE TABLE nonces (
    key_id     text   COLLATE "C" NOT NULL,
    nonce      text   COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (key_id, nonce)
);

CREATE INDEX nonces_by_end ON nonces (expires_at);
