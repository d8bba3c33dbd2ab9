//! The ready line: one JSON object on stdout, and in `--ready-file`.

use crate::exit::Ending;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Says that a process is ready. The file appears whole or not at all.
pub fn announce(line: &Value, file: Option<&Path>) -> Result<(), Ending> {
    if let Some(path) = file {
        let folder = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let named = |e: std::io::Error| {
            Ending::Usage(format!(
                "--ready-file {} cannot be written: {e}",
                path.display()
            ))
        };
        let mut scratch = tempfile::NamedTempFile::new_in(folder).map_err(named)?;
        writeln!(scratch, "{line}").map_err(named)?;
        scratch.persist(path).map_err(|e| named(e.error))?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
