//! `snowskin gen-trace`

use crate::args::GenTraceArgs;
use crate::exit::Ending;
use crate::say::gone_is_done;
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
    let mut write = || -> std::io::Result<()> {
        for request in generate(shape) {
            serde_json::to_writer(&mut out, &request)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    Ok(gone_is_done(write())?)
}
