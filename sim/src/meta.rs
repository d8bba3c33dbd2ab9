//! The simulator's own test: the same seed twice gives the same events, byte for byte.

use crate::run;
use crate::setup::Setup;
use crate::trace::Mode;

/// Runs a seed twice.
///
/// # Errors
/// The first line in which the two logs differ.
pub fn same_twice(setup: &Setup) -> Result<usize, String> {
    let one = run::run(setup.clone(), Mode::All);
    let two = run::run(setup.clone(), Mode::All);
    for (index, (a, b)) in one.lines.iter().zip(&two.lines).enumerate() {
        if a != b {
            return Err(format!("line {index} differs:\n  {a}\n  {b}"));
        }
    }
    if one.lines.len() != two.lines.len() {
        return Err(format!(
            "{} lines, then {}",
            one.lines.len(),
            two.lines.len()
        ));
    }
    Ok(one.lines.len())
}
