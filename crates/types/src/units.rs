//! Sizes and durations as people write them in options and config files.

use std::time::Duration;

/// Why a size or a duration could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a size.
    #[error(
        "{text:?} is not a size: write a whole number of bytes, or one with KiB, MiB, GiB, TiB (KB, MB, GB, TB count 1024 too)"
    )]
    Size {
        /// What was given.
        text: String,
    },
    /// Not a duration.
    #[error("{text:?} is not a duration: write a whole number with ms, s, m or h")]
    Duration {
        /// What was given.
        text: String,
    },
}

/// Reads a size: whole bytes, or a (decimal) number with KiB..TiB or KB..TB; all 1024-based.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Size {
        text: text.to_owned(),
    };
    let t = text.trim();
    let split = t
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(bad);
    }
    let value: f64 = number.parse().map_err(|_| bad())?;
    let bytes = value * (1u64 << shift) as f64;
    if shift == 0 || !(0.0..9e18).contains(&bytes) {
        return Err(bad());
    }
    Ok(bytes as u64)
}

/// Reads a duration: a whole number with ms, s, m or h; a bare number counts `bare`.
pub fn parse_duration(text: &str, bare: Duration) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration {
        text: text.to_owned(),
    };
    let t = text.trim();
    let split = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = match unit.trim() {
        "" => bare,
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        _ => return Err(bad()),
    };
    let ms = (unit.as_millis() as u64)
        .checked_mul(number)
        .ok_or_else(bad)?;
    Ok(Duration::from_millis(ms))
}

/// Writes a size for people.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    for (name, unit) in UNITS {
        if bytes >= unit {
            let value = bytes as f64 / unit as f64;
            return if bytes.is_multiple_of(unit) {
                format!("{} {name}", bytes / unit)
            } else {
                format!("{value:.1} {name}")
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_1024_based_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65536),
            ("64 KB", 65536),
            ("1.5GiB", 3 << 29),
            ("2tb", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1 PiB", "-1", "1.5", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_and_a_bare_number_takes_the_given_unit() {
        let ms = Duration::from_millis(1);
        assert_eq!(parse_duration("1500", ms), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m", ms), Ok(Duration::from_secs(120)));
        assert!(parse_duration("2 days", ms).is_err());
    }
}
