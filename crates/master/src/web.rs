//! What every HTTP route needs: values of a query, errors as JSON.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;
use snowskin_types::error::Stage;
use snowskin_types::key::{KeyError, escape};
use snowskin_types::{Code, Failure};

/// Result of a route.
pub(crate) type Answer<T> = Result<T, Error>;

/// Why a route has no result.
#[derive(Debug)]
pub(crate) enum Error {
    /// Told as JSON, with the key it is about as it is shown.
    Failure(Box<Failure>, Option<String>),
    /// Told in words.
    Plain(Plain),
}

/// An error that upstream tells in plain text.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) StatusCode, pub(crate) &'static str);

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let key = failure.key.as_ref().map(|key| escape(key.as_bytes()));
        Error::Failure(Box::new(failure), key)
    }
}

impl Error {
    /// Names the key that was asked for, which need not be one that is allowed.
    pub(crate) fn about(self, key: &[u8]) -> Self {
        match self {
            Error::Failure(failure, _) => Error::Failure(failure, Some(escape(key))),
            plain @ Error::Plain(_) => plain,
        }
    }
}

impl From<Plain> for Error {
    fn from(plain: Plain) -> Self {
        Error::Plain(plain)
    }
}

/// A key that is not allowed.
pub(crate) fn bad_key(error: &KeyError) -> Error {
    let code = match error {
        KeyError::TooLong { .. } => Code::InvalidKey,
        KeyError::Empty | KeyError::Tenant { .. } => Code::InvalidParams,
    };
    Failure::new(code, Stage::Locate, error.to_string()).into()
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidParams | Code::InvalidKey => StatusCode::BAD_REQUEST,
        Code::ObjectNotFound | Code::SegmentNotFound | Code::ClientNotFound => {
            StatusCode::NOT_FOUND
        }
        Code::UnavailableInStatus | Code::UnavailableInMode => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (failure, key) = match self {
            Error::Failure(failure, key) => (failure, key),
            Error::Plain(Plain(status, text)) => return (status, text).into_response(),
        };
        let code = failure.code;
        let body = json!({
            "success": false,
            "error_code": code.number(),
            "error_message": code.name(),
            "error": {
                "code": code.number(),
                "name": code.name(),
                "message": failure.message,
                "key": key,
                "peer": failure.peer,
                "stage": failure.stage,
                "retry": code.retry(),
                "detail": failure.detail,
            },
        });
        (status(code), Json(body)).into_response()
    }
}

/// The values of a query string. Percent-escapes are decoded, a plus sign stands for itself: keys are
/// often base64.
pub(crate) struct Values<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Values<'a> {
    /// Splits the string.
    pub(crate) fn parse(query: Option<&'a str>) -> Answer<Self> {
        let pairs = query
            .unwrap_or("")
            .split('&')
            .filter(|pair| !pair.is_empty());
        Ok(Values(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .collect(),
        ))
    }

    fn raw(&self, name: &str) -> Answer<&'a str> {
        let found = self
            .0
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| *value);
        match found {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(invalid(format!(
                "the parameter {name}= is missing or empty"
            ))),
        }
    }

    /// The value of a parameter that must be there.
    pub(crate) fn one(&self, name: &str) -> Answer<Vec<u8>> {
        decode(self.raw(name)?)
    }

    /// The comma-separated values of a parameter that must be there; an escaped comma is part of a value.
    pub(crate) fn list(&self, name: &str, max: usize) -> Answer<Vec<Vec<u8>>> {
        let values: Vec<_> = self
            .raw(name)?
            .split(',')
            .filter(|v| !v.is_empty())
            .take(max + 1)
            .collect();
        match values.len() {
            0 => Err(invalid(format!("the parameter {name}= has no value"))),
            n if n > max => Err(invalid(format!("{name}= has more than {max} values"))),
            _ => values.into_iter().map(decode).collect(),
        }
    }
}

fn invalid(text: String) -> Error {
    Failure::new(Code::InvalidParams, Stage::Session, text).into()
}

fn decode(text: &str) -> Answer<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            // Two hexadecimal digits are below 256.
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => {
                return Err(invalid(format!(
                    "{text:?} has a percent sign without two hex digits"
                )));
            }
        }
    }
    Ok(out)
}

/// Shows a whole key: control characters, backslashes and bytes that are no text are escaped.
pub(crate) fn escape_key(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// Adds a key and the end of its line.
pub(crate) fn escape_line(key: &[u8], out: &mut String) {
    out.push_str(&escape_key(key));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_decoded_and_a_plus_sign_is_kept() {
        let values =
            Values::parse(Some("key=a%2Fb%00+c&keys=x,%2C,y&empty=")).unwrap_or_else(|_| panic!());
        assert_eq!(values.one("key").unwrap(), b"a/b\0+c");
        assert_eq!(values.list("keys", 3).unwrap(), [&b"x"[..], b",", b"y"]);
        assert!(values.list("keys", 2).is_err());
        for missing in ["empty", "none"] {
            assert!(values.one(missing).is_err(), "{missing}");
        }
        let values = Values::parse(Some("key=%4")).unwrap_or_else(|_| panic!());
        assert!(values.one("key").is_err());
    }

    #[test]
    fn a_listed_key_is_one_line_whatever_its_bytes() {
        let mut out = String::new();
        escape_line(b"a\nb\xff\\", &mut out);
        escape_line("\u{e9}".repeat(300).as_bytes(), &mut out);
        assert_eq!(out, format!("a\\nb\\xff\\\\\n{}\n", "\u{e9}".repeat(300)));
    }
}
