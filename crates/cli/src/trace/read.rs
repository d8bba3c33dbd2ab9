//! Reads a trace: one JSON object a line with `timestamp`, `input_length`, `output_length`, `hash_ids`.

use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;

/// Tokens of one block, unless the trace says otherwise.
pub const BLOCK_TOKENS: u64 = 512;
/// Most requests of one trace.
const REQUESTS_MAX: usize = 10_000_000;
/// Most blocks of one request.
const BLOCKS_MAX: usize = 1_000_000;

/// One request of a workload: its prompt as a chain of prefix blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Milliseconds since the start of the trace.
    pub timestamp: u64,
    /// Tokens of the prompt.
    pub input_length: u64,
    /// Tokens of the answer.
    pub output_length: u64,
    /// Global ids of the prompt's blocks; equal ids are reusable blocks.
    pub hash_ids: Vec<u64>,
}

/// Why a trace could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read.
    #[error("the trace {path} could not be read: {source}")]
    Read {
        /// File.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A line is not a request.
    #[error(
        "the trace {path}, line {line}: {what}; a line is a JSON object with timestamp, input_length, output_length (whole numbers) and hash_ids (a list of whole numbers)"
    )]
    Line {
        /// File.
        path: String,
        /// Line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// No request in it.
    #[error("the trace {path} has no requests")]
    Empty {
        /// File.
        path: String,
    },
}

/// Reads a whole trace; the first malformed line ends it with an error that names the line.
pub fn read(path: &Path) -> Result<Vec<TraceRequest>, TraceError> {
    let shown = path.display().to_string();
    let read_error = |source| TraceError::Read {
        path: shown.clone(),
        source,
    };
    let file = std::fs::File::open(path).map_err(read_error)?;
    let mut requests: Vec<TraceRequest> = Vec::new();
    for (number, text) in std::io::BufReader::new(file).lines().enumerate() {
        let line = number + 1;
        let wrong = |what: String| TraceError::Line {
            path: shown.clone(),
            line,
            what,
        };
        let text = match text {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                return Err(wrong("it is not UTF-8 text".into()));
            }
            Err(e) => return Err(read_error(e)),
        };
        if text.trim().is_empty() {
            continue;
        }
        let request: TraceRequest =
            serde_json::from_str(&text).map_err(|e| wrong(format!("{e}")))?;
        if request.hash_ids.len() > BLOCKS_MAX {
            let count = request.hash_ids.len();
            return Err(wrong(format!("{count} hash_ids; allowed are {BLOCKS_MAX}")));
        }
        if requests
            .last()
            .is_some_and(|last| last.timestamp > request.timestamp)
        {
            return Err(wrong(
                "its timestamp lies before the one of the line above".into(),
            ));
        }
        if requests.len() == REQUESTS_MAX {
            return Err(wrong(format!("more than {REQUESTS_MAX} requests")));
        }
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(TraceError::Empty { path: shown });
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    const GOOD: &str =
        r#"{"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}"#;

    #[test]
    fn a_good_trace_is_read_in_order() {
        let trace = read(file(&format!("{GOOD}\n\n{GOOD}\n")).path()).unwrap();
        assert_eq!(trace.len(), 2);
        assert_eq!(trace[1].hash_ids, [1, 2]);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let earlier = GOOD.replace("5,", "4,");
        for bad in [
            "{",
            "[]",
            r#"{"timestamp": 5}"#,
            r#"{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []}"#,
            &earlier,
        ] {
            let error = read(file(&format!("{GOOD}\n{bad}\n")).path()).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{bad}: {error}");
        }
        assert!(matches!(
            read(file("\n").path()),
            Err(TraceError::Empty { .. })
        ));
    }
}
