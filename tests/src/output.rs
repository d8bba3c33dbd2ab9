//! What a command said, and how it ended.

use serde_json::Value;
use std::process::Output;

/// Its exit code.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Its standard output.
pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Its standard error.
pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one JSON object on its standard output.
pub fn json(output: &Output) -> Value {
    let text = out(output);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?} {}", err(output)))
}

/// It printed an error object with all fields and this code, name and stage.
#[track_caller]
pub fn is_error(output: &Output, number: i64, name: &str, stage: &str) {
    let object = json(output);
    for field in ["message", "key", "peer", "retry", "detail"] {
        assert!(object.get(field).is_some(), "no {field} in {object}");
    }
    assert_eq!(object["code"], number, "{object}");
    assert_eq!(object["name"], name, "{object}");
    assert_eq!(object["stage"], stage, "{object}");
    let retry = object["retry"].as_str().unwrap();
    assert!(
        ["never", "same", "other_replica", "after_refresh"].contains(&retry),
        "{object}"
    );
}
