//! `/openapi.json`, checked by an independent validator.

use std::process::Command;

use super::world::shared;

#[tokio::test]
async fn an_independent_validator_accepts_the_document() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("openapi.json");
    let document = shared().await.api.get("/openapi.json").await.expect(200);
    std::fs::write(&file, document.to_string()).unwrap();
    let output = Command::new("python3")
        .args(["-m", "openapi_spec_validator", "--schema", "3.1"])
        .arg(&file)
        .output()
        .expect("python3 runs; scripts/install-test-deps installs it");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/install-test-deps installs the validator; it printed:\n{printed}");
}
