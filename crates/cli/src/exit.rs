//! How a command ends: exit codes, and errors for people and for programs.

use serde_json::{Value, json};
use snowskin_types::error::{Code, Failure, Retry};

/// Why a command ended without success.
#[derive(Debug)]
pub enum Ending {
    /// A usage or configuration error.
    Usage(String),
    /// Something went wrong at run time.
    Runtime(String),
    /// Some key is missing; the results have been printed.
    Missing,
    /// Wrong bytes or differences; the results have been printed.
    Integrity(String),
    /// A call failed.
    Failed(Failure),
    /// Everything has been printed; only the exit code is left.
    Printed(u8),
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Ending::Failed(failure)
    }
}

impl From<std::io::Error> for Ending {
    fn from(error: std::io::Error) -> Self {
        Ending::Runtime(error.to_string())
    }
}

/// The exit code of a failed call.
pub fn code_of(code: Code) -> u8 {
    match code {
        Code::ObjectNotFound | Code::ReplicaGone => 3,
        Code::RpcFail | Code::RpcTimeout | Code::TransferFail | Code::ClientNotFound => 4,
        Code::ChecksumMismatch => 5,
        Code::NoSpace
        | Code::ObjectHasLease
        | Code::ObjectAlreadyExists
        | Code::ObjectReplicaBusy => 6,
        Code::InvalidParams | Code::InvalidKey | Code::NotSupported => 2,
        _ => 1,
    }
}

impl Ending {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Ending::Usage(_) => 2,
            Ending::Runtime(_) => 1,
            Ending::Missing => 3,
            Ending::Printed(code) => *code,
            Ending::Integrity(_) => 5,
            Ending::Failed(failure) => code_of(failure.code),
        }
    }

    /// Prints it: an error object on stdout with `--json`, a sentence on stderr otherwise.
    pub fn print(&self, json: bool) {
        let (text, object) = match self {
            Ending::Missing | Ending::Printed(_) => return,
            Ending::Usage(text) => (
                text.clone(),
                error_json(&generic(Code::InvalidParams, text)),
            ),
            Ending::Runtime(text) | Ending::Integrity(text) => {
                (text.clone(), error_json(&generic(Code::Internal, text)))
            }
            Ending::Failed(failure) => (failure.to_string(), error_json(failure)),
        };
        if json {
            say!("{object}");
        } else {
            tell!("snowskin: {text}");
        }
    }
}

fn generic(code: Code, text: &str) -> Failure {
    Failure::new(code, snowskin_types::Stage::Session, text)
}

/// The error object of the outside contract.
pub fn error_json(failure: &Failure) -> Value {
    let retry = match failure.code.retry() {
        Retry::Never => "never",
        Retry::Same => "same",
        Retry::OtherReplica => "other_replica",
        Retry::AfterRefresh => "after_refresh",
    };
    json!({
        "code": failure.code.number(),
        "name": failure.code.name(),
        "message": failure.message,
        "key": failure.key.as_ref().map(ToString::to_string),
        "peer": failure.peer,
        "stage": failure.stage,
        "retry": retry,
        "detail": failure.detail,
    })
}
