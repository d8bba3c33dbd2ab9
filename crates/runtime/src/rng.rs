//! Randomness: seeded where runs must repeat, from the system everywhere else.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io;

/// The generator of the whole product: portable, so that a seed gives the same run everywhere.
pub type Random = ChaCha8Rng;

/// A generator whose output is a function of the seed.
pub fn seeded(seed: u64) -> Random {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A generator seeded by the system.
///
/// # Errors
/// When the system gives no randomness.
pub fn system() -> io::Result<Random> {
    ChaCha8Rng::try_from_os_rng().map_err(io::Error::other)
}

/// A number that no other process has: epochs and process ids. Never zero.
///
/// # Errors
/// When the system gives no randomness.
pub fn unique() -> io::Result<u64> {
    let mut random = system()?;
    loop {
        let number = random.next_u64();
        if number != 0 {
            return Ok(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_the_system_others() {
        let draw = |mut random: Random| [random.next_u64(), random.next_u64()];
        assert_eq!(draw(seeded(7)), draw(seeded(7)));
        assert_ne!(draw(seeded(7)), draw(seeded(8)));
        assert_ne!(unique().unwrap(), unique().unwrap());
    }
}
