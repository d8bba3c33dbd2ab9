//! Lines on standard output and standard error, for readers that may leave early.
//!
//! `println!` panics when nobody reads any more (`snowskin ls | head`) or the disk is full. Here, a
//! reader that has left is no fault of the command; any other failure ends it with exit code 1.

use std::fmt::Arguments;
use std::io::{ErrorKind, Result, Write};
use std::sync::Mutex;

/// The first failure to print that matters.
static FAILURE: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Prints a line of results.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::result(format_args!($($words)*)) };
}

/// Prints a line for people beside the results.
macro_rules! tell {
    ($($words:tt)*) => { $crate::say::remark(format_args!($($words)*)) };
}

/// See [`say!`].
pub fn result(words: Arguments<'_>) {
    note(write_line(&mut std::io::stdout().lock(), words));
}

/// See [`tell!`]. When it cannot be printed, there is nobody to be told.
pub fn remark(words: Arguments<'_>) {
    write_line(&mut std::io::stderr().lock(), words).ok();
}

/// What kept results from being printed, once all has been said.
pub fn failure() -> Option<std::io::Error> {
    note(gone_is_done(std::io::stdout().lock().flush()));
    FAILURE.lock().ok().and_then(|mut first| first.take())
}

/// Takes a reader that has left for one that has seen enough.
pub fn gone_is_done(written: Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn write_line(out: &mut impl Write, words: Arguments<'_>) -> Result<()> {
    gone_is_done(writeln!(out, "{words}"))
}

fn note(written: Result<()>) {
    if let (Err(error), Ok(mut first)) = (written, FAILURE.lock()) {
        first.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_has_left_is_no_failure_and_a_full_disk_is_one() {
        let left = write_line(&mut Fails(ErrorKind::BrokenPipe), format_args!("x"));
        assert!(left.is_ok());
        let full = write_line(&mut Fails(ErrorKind::StorageFull), format_args!("x"));
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
