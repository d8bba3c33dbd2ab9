//! Where options come from: command line over environment over config file over default.
//!
//! Everything becomes command-line words before parsing, so that one parser checks all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

/// Why the options could not be put together. Always a usage error.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionsError {
    /// The config file could not be read.
    #[error("the config file {path} could not be read: {what}")]
    Read {
        /// File.
        path: String,
        /// Cause.
        what: String,
    },
    /// The config file is not valid.
    #[error("the config file {path} is not valid: {what}")]
    Syntax {
        /// File.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A key of the config file is not an option.
    #[error("the config file {path} has the unknown key {key:?}; the nearest is {nearest:?}")]
    UnknownKey {
        /// File.
        path: String,
        /// Key.
        key: String,
        /// The most similar option.
        nearest: String,
    },
    /// A variable is not known.
    #[error("the environment has the unknown variable {name}; the nearest is {nearest}")]
    UnknownVariable {
        /// Variable.
        name: String,
        /// The most similar variable.
        nearest: String,
    },
    /// A variable has a value that is not allowed.
    #[error("the variable {name} of the environment is {value:?}; allowed are {allowed}")]
    VariableValue {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// All values, in words.
        allowed: &'static str,
    },
    /// A value has a form that an option cannot have.
    #[error(
        "the value of {key:?} in the config file {path} is not a word, a number, a truth value or a list of these"
    )]
    Value {
        /// File.
        path: String,
        /// Key.
        key: String,
    },
    /// An option is given twice in the config file, once with dashes and once with underscores.
    #[error("the config file {path} gives {name:?} twice")]
    Twice {
        /// File.
        path: String,
        /// Option.
        name: String,
    },
    /// A word of the command line is not text.
    #[error("word {number} of the command line, {shown:?}, is not UTF-8 text")]
    Word {
        /// Which one; the command itself is word 0.
        number: usize,
        /// The word, as far as it can be shown.
        shown: String,
    },
    /// A variable that is read here is not text.
    #[error("the variable {name} of the environment is not UTF-8 text")]
    Variable {
        /// Its name, as far as it can be shown.
        name: String,
    },
}

/// The variables that are ours.
pub const VARIABLES: &[&str] = &[
    "SNOWSKIN_MASTER",
    "SNOWSKIN_CONFIG",
    "SNOWSKIN_LOG",
    "SNOWSKIN_LOG_FORMAT",
    "SNOWSKIN_TIMEOUT_MS",
    "SNOWSKIN_SAME_HOST",
    "SNOWSKIN_STRICT_BUFFERS",
    "SNOWSKIN_DRIVER_LIBRARIES",
    "SNOWSKIN_TOKEN_FILE",
];

/// Switches that no command of this program has a use for. They are checked all the same, so that what
/// an engine on the same machine would refuse is refused here too: name, values in lower case, in words.
const SWITCHES: &[(&str, &[&str], &str)] = &[
    ("SNOWSKIN_SAME_HOST", &["auto", "off"], "auto and off"),
    (
        "SNOWSKIN_STRICT_BUFFERS",
        &["1", "true", "yes", "on", "0", "false", "no", "off"],
        "1, true, yes, on and 0, false, no, off",
    ),
];

/// Variables of tests and tools that begin alike and mean nothing to the program.
const FOREIGN: &[&str] = &["SNOWSKIN_BIN"];

/// The words of the command line as text.
///
/// # Errors
/// Names the first word that is none.
pub fn text_words(words: Vec<OsString>) -> Result<Vec<String>, OptionsError> {
    let text = |(number, word): (usize, OsString)| {
        word.into_string().map_err(|word| OptionsError::Word {
            number,
            shown: word.to_string_lossy().into_owned(),
        })
    };
    words.into_iter().enumerate().map(text).collect()
}

/// The variables that are text. Others are nobody's business, unless they are ours.
///
/// # Errors
/// Names a `SNOWSKIN_*` variable that is not text.
pub fn text_variables(
    variables: Vec<(OsString, OsString)>,
) -> Result<BTreeMap<String, String>, OptionsError> {
    let mut out = BTreeMap::new();
    for (name, value) in variables {
        let shown = name.to_string_lossy().into_owned();
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                out.insert(name, value);
            }
            _ if shown.starts_with("SNOWSKIN_") => {
                return Err(OptionsError::Variable { name: shown });
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Makes `--a_b=v` and `--a-b=v` the same.
pub fn normalise(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut plain = false;
    let fold = |word: String| {
        if word == "--" {
            plain = true;
        }
        match word.strip_prefix("--") {
            Some(rest) if !plain && !rest.is_empty() => {
                let (name, value) = match rest.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (rest, None),
                };
                let name = name.replace('_', "-");
                match value {
                    Some(value) => format!("--{name}={value}"),
                    None => format!("--{name}"),
                }
            }
            _ => word,
        }
    };
    words.into_iter().map(fold).collect()
}

/// Checks that every `SNOWSKIN_*` variable is known, and the values of those that no option takes over.
///
/// # Errors
/// Names the first variable that is unknown or has a value that is not allowed.
pub fn check_environment(variables: &BTreeMap<String, String>) -> Result<(), OptionsError> {
    for name in variables.keys().filter(|n| n.starts_with("SNOWSKIN_")) {
        if !VARIABLES.contains(&name.as_str()) && !FOREIGN.contains(&name.as_str()) {
            let nearest = nearest(name, VARIABLES.iter().copied()).to_owned();
            let name = name.clone();
            return Err(OptionsError::UnknownVariable { name, nearest });
        }
    }
    for &(name, values, allowed) in SWITCHES {
        let given = variables.get(name).filter(|value| !value.is_empty());
        if let Some(value) = given
            && !values.contains(&value.to_ascii_lowercase().as_str())
        {
            let value = value.clone();
            return Err(OptionsError::VariableValue {
                name,
                value,
                allowed,
            });
        }
    }
    Ok(())
}

/// True for upstream's variables that are honoured elsewhere, in Python or with a disk tier, and mean
/// nothing to this program.
pub fn is_unused(name: &str) -> bool {
    name == "MOONCAKE_CONFIG_PATH" || name.starts_with("MOONCAKE_OFFLOAD_")
}

/// The candidate with the fewest single-character edits.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    candidates
        .into_iter()
        .min_by_key(|c| distance(word, c))
        .unwrap_or("")
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, y) in row.iter_mut().skip(1).zip(&b) {
            let cost = (diagonal + usize::from(x != *y))
                .min(left + 1)
                .min(*above + 1);
            diagonal = *above;
            *above = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Reads a config file into command-line words. `known`: the long names of the command's options.
pub fn read_config(path: &Path, known: &[String]) -> Result<Vec<String>, OptionsError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| OptionsError::Read {
        path: shown.clone(),
        what: e.to_string(),
    })?;
    let syntax = |what: String| OptionsError::Syntax {
        path: shown.clone(),
        what,
    };
    let extension = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    let table: BTreeMap<String, serde_json::Value> = match extension {
        "toml" => toml::from_str(&text).map_err(|e| syntax(e.to_string()))?,
        "yaml" | "yml" => serde_yaml_ng::from_str(&text).map_err(|e| syntax(e.to_string()))?,
        "json" => serde_json::from_str(&text).map_err(|e| syntax(e.to_string()))?,
        other => {
            return Err(syntax(format!(
                "{other:?} is not .toml, .yaml, .yml or .json"
            )));
        }
    };
    let mut words = Vec::new();
    let mut given = BTreeSet::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if !known.contains(&name) {
            let nearest = nearest(&name, known.iter().map(String::as_str)).to_owned();
            return Err(OptionsError::UnknownKey {
                path: shown,
                key,
                nearest,
            });
        }
        if !given.insert(name.clone()) {
            return Err(OptionsError::Twice { path: shown, name });
        }
        let values = match value {
            serde_json::Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            match value {
                serde_json::Value::Bool(true) => words.push(format!("--{name}")),
                serde_json::Value::Bool(false) | serde_json::Value::Null => {}
                serde_json::Value::Number(number) => words.push(format!("--{name}={number}")),
                serde_json::Value::String(text) => words.push(format!("--{name}={text}")),
                _ => return Err(OptionsError::Value { path: shown, key }),
            }
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(extension: &str, text: &str) -> tempfile::TempPath {
        let mut file = tempfile::Builder::new()
            .suffix(extension)
            .tempfile()
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.into_temp_path()
    }

    fn known() -> Vec<String> {
        ["rpc-port", "state-dir", "json"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn underscores_and_dashes_in_option_names_are_the_same() {
        let words = ["put", "--rpc_port=1", "a_b", "--", "--x_y"].map(str::to_owned);
        assert_eq!(
            normalise(words),
            ["put", "--rpc-port=1", "a_b", "--", "--x_y"]
        );
    }

    #[test]
    fn the_three_formats_read_alike() {
        for (extension, text) in [
            (".toml", "rpc_port = 7\nstate_dir = \"s\"\njson = true\n"),
            (".yaml", "rpc_port: 7\nstate_dir: s\njson: true\n"),
            (
                ".json",
                "{\"rpc-port\": 7, \"state_dir\": \"s\", \"json\": true}",
            ),
        ] {
            let mut words = read_config(&file(extension, text), &known()).unwrap();
            words.sort();
            assert_eq!(
                words,
                ["--json", "--rpc-port=7", "--state-dir=s"],
                "{extension}"
            );
        }
    }

    #[test]
    fn what_is_not_text_is_named_or_left_alone() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || OsString::from_vec(b"a\xffb".to_vec());
        let words = vec!["snowskin".into(), "exists".into(), odd()];
        let error = text_words(words).unwrap_err();
        assert!(matches!(error, OptionsError::Word { number: 2, .. }));
        let foreign = vec![("HOME".into(), odd()), (odd(), "x".into())];
        assert_eq!(text_variables(foreign), Ok(BTreeMap::new()));
        let ours = vec![("SNOWSKIN_MASTER".into(), odd())];
        let name = "SNOWSKIN_MASTER".to_owned();
        assert_eq!(text_variables(ours), Err(OptionsError::Variable { name }));
    }

    #[test]
    fn an_option_with_two_values_in_one_file_is_refused() {
        let error = read_config(&file(".toml", "rpc-port = 1\nrpc_port = 2\n"), &known());
        assert!(matches!(error, Err(OptionsError::Twice { name, .. }) if name == "rpc-port"));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_option() {
        let error = read_config(&file(".toml", "rpc_prt = 7\n"), &known()).unwrap_err();
        assert!(matches!(error, OptionsError::UnknownKey { nearest, .. } if nearest == "rpc-port"));
    }

    #[test]
    fn an_unknown_variable_names_the_nearest() {
        let of = |name: &str, value: &str| {
            check_environment(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        let error = of("SNOWSKIN_MASTR", "x").unwrap_err();
        assert_eq!(
            error,
            OptionsError::UnknownVariable {
                name: "SNOWSKIN_MASTR".into(),
                nearest: "SNOWSKIN_MASTER".into()
            }
        );
        for (name, value) in [
            ("HOME", "x"),
            ("SNOWSKIN_LOG", "x"),
            ("SNOWSKIN_SAME_HOST", "OFF"),
            ("SNOWSKIN_STRICT_BUFFERS", "Yes"),
            ("SNOWSKIN_STRICT_BUFFERS", ""),
        ] {
            assert_eq!(of(name, value), Ok(()), "{name}={value}");
        }
        for (name, allowed) in [
            ("SNOWSKIN_SAME_HOST", "auto and off"),
            ("SNOWSKIN_STRICT_BUFFERS", "true"),
        ] {
            let error = of(name, "maybe").unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn variables_of_parts_that_are_elsewhere_are_known_as_unused() {
        assert!(is_unused("MOONCAKE_CONFIG_PATH") && is_unused("MOONCAKE_OFFLOAD_ENABLED"));
        assert!(!is_unused("MOONCAKE_MASTER") && !is_unused("MOONCAKE_STORE_CHECKSUM"));
    }
}
