-- The secrets that the webhooks of a tenant are signed with. All of them live; at most two do, since each has a number of
-- its own.
CREATE TABLE webhook_secrets (
    tenant      text   COLLATE "C" NOT NULL,
    number      bigint NOT NULL CHECK (number IN (1, 2)),
    id          uuid   NOT NULL,
    created_at  bigint NOT NULL,
    last_digits text   NOT NULL, -- the end of its text, to tell it from others
    secret      bytea  NOT NULL,
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, secret)
);
