DROP TABLE webhook_secrets;
