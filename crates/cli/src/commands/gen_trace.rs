//! `snowskin gen-trace`

use crate::args::GenTraceArgs;
use crate::exit::Ending;
use crate::trace::generate::{Shape, generate};
use std::io::{BufWriter, Write};

/// Writes a generated trace.
pub fn run(args: &GenTraceArgs) -> Result<(), Ending> {
    let shape = Shape {
        seed: args.seed,
        requests: args.requests,
        systems: args.systems,
        open: args.conversations,
        ..Shape::default()
    };
    let target: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(std::fs::File::create(path).map_err(|e| {
            Ending::Usage(format!(
                "--output {} cannot be written: {e}",
                path.display()
            ))
        })?),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut out = BufWriter::new(target);
    for request in generate(shape) {
        let line = serde_json::to_string(&request).map_err(|e| Ending::Runtime(e.to_string()))?;
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}
