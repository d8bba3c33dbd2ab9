//! Logs: structured events on stderr, as text or as JSON lines.

use crate::clock::{Clock, SystemClock};
use parking_lot::Mutex;
use snowskin_types::time::{Millis, Now};
use std::io;
use std::str::FromStr;
use tracing_subscriber::EnvFilter;

/// How events look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The format is not one of the known ones.
    #[error("the log format {given:?} is not known: text or json")]
    Format {
        /// What was given.
        given: String,
    },
    /// The filter cannot be read.
    #[error(
        "the log filter {given:?} cannot be read ({reason}): write a level (error, warn, info, debug, trace) or target=level, separated by commas"
    )]
    Filter {
        /// What was given.
        given: String,
        /// The parser's words.
        reason: String,
    },
    /// Logging is already set up in this process.
    #[error("logging is already set up")]
    Twice,
}

impl FromStr for Format {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        match text {
            "" | "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            other => Err(TelemetryError::Format {
                given: other.to_owned(),
            }),
        }
    }
}

/// Reads a filter; nothing given means `info`.
///
/// # Errors
/// When it is not a list of levels and targets.
pub fn filter(text: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("info");
    EnvFilter::try_new(text).map_err(|error| TelemetryError::Filter {
        given: text.to_owned(),
        reason: error.to_string(),
    })
}

/// Sends events to stderr from now on, for the whole process.
///
/// # Errors
/// When the filter cannot be read, or logging was set up before.
pub fn start(filter_text: Option<&str>, format: Format) -> Result<(), TelemetryError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(filter_text)?)
        .with_writer(io::stderr)
        .with_ansi(false);
    let started = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|_| TelemetryError::Twice)
}

/// Shortest time between two lines of one [`Seldom`].
pub const SELDOM: Millis = Millis(1_000);

/// Thins out lines that others can bring about as often as they like: the first of a burst is told
/// at once, what follows within [`SELDOM`] is counted and told with the next one after it.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    next: Now,
}

impl Seldom {
    /// One more. The number since the last line, when it is time for another.
    pub fn another(&self) -> Option<u64> {
        self.another_at(SystemClock.now())
    }

    fn another_at(&self, now: Now) -> Option<u64> {
        let mut untold = self.0.lock();
        untold.count += 1;
        if now < untold.next {
            return None;
        }
        untold.next = now + SELDOM;
        Some(std::mem::take(&mut untold.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_once_a_second_with_its_number() {
        let seldom = Seldom::default();
        assert_eq!(seldom.another_at(Now(5_000)), Some(1));
        for millis in 5_001..5_999 {
            assert_eq!(seldom.another_at(Now(millis)), None);
        }
        assert_eq!(seldom.another_at(Now(6_000)), Some(999));
        assert_eq!(seldom.another_at(Now(6_001)), None);
        assert_eq!(seldom.another_at(Now(60_000)), Some(2));
    }

    #[test]
    fn unknown_formats_and_filters_are_named_in_the_error() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        assert!(
            "yaml"
                .parse::<Format>()
                .unwrap_err()
                .to_string()
                .contains("yaml")
        );
        assert!(filter(Some("info,snowskin_node=debug")).is_ok());
        assert!(
            filter(Some("a=b=c"))
                .unwrap_err()
                .to_string()
                .contains("a=b=c")
        );
    }
}
