//! How large buckets are and how many of them a limit pays for.

use crate::format::BLOCK_BYTES;
use snowskin_types::units::show_size;

/// Largest bucket.
pub const BUCKET_BYTES_MAX: u64 = 256 << 20;
/// Smallest bucket.
pub const BUCKET_BYTES_MIN: u64 = 1 << 20;
/// Into how many buckets a small limit is cut, at least.
pub const BUCKETS_MIN: u64 = 16;
/// Smallest limit of a slot.
pub const LIMIT_BYTES_MIN: u64 = BUCKET_BYTES_MIN * BUCKETS_MIN;

/// How a slot is cut into buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// Bytes of each new bucket: a power of two.
    pub bucket_bytes: u64,
    /// Bytes that all buckets together may take, but for one bucket more while space is made.
    pub limit_bytes: u64,
}

/// Why a slot cannot be cut into buckets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    /// Too little space.
    #[error(
        "an SSD limit of {} is too small: at least {} are needed, {BUCKETS_MIN} buckets of {}",
        show_size(*limit), show_size(LIMIT_BYTES_MIN), show_size(BUCKET_BYTES_MIN)
    )]
    LimitTooSmall {
        /// The limit asked for, in bytes.
        limit: u64,
    },
    /// Not a size for buckets.
    #[error(
        "a bucket size of {} is not usable: a power of two from {} to {} is allowed for an SSD limit of {}",
        show_size(*bytes), show_size(BUCKET_BYTES_MIN), show_size(*max), show_size(*limit)
    )]
    BucketSize {
        /// The size asked for, in bytes.
        bytes: u64,
        /// The largest one allowed.
        max: u64,
        /// The limit, in bytes.
        limit: u64,
    },
}

impl Sizing {
    /// Buckets of min(256 MiB, limit / 16), rounded down to a power of two.
    ///
    /// # Errors
    /// When the limit does not pay for 16 of the smallest buckets.
    pub fn of(limit_bytes: u64) -> Result<Self, SizingError> {
        if limit_bytes < LIMIT_BYTES_MIN {
            return Err(SizingError::LimitTooSmall { limit: limit_bytes });
        }
        let share = (limit_bytes / BUCKETS_MIN).min(BUCKET_BYTES_MAX);
        Ok(Sizing {
            bucket_bytes: 1 << share.ilog2(),
            limit_bytes,
        })
    }

    /// Buckets of a chosen size.
    ///
    /// # Errors
    /// As [`Sizing::of`], and when the size is no power of two or above what `of` would choose.
    pub fn with_bucket(limit_bytes: u64, bucket_bytes: u64) -> Result<Self, SizingError> {
        let max = Self::of(limit_bytes)?.bucket_bytes;
        if !is_bucket_size(bucket_bytes) || bucket_bytes > max {
            return Err(SizingError::BucketSize {
                bytes: bucket_bytes,
                max,
                limit: limit_bytes,
            });
        }
        Ok(Sizing {
            bucket_bytes,
            limit_bytes,
        })
    }
}

/// Whether a file of this length can be a bucket.
pub fn is_bucket_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (BUCKET_BYTES_MIN..=BUCKET_BYTES_MAX).contains(&bytes)
}

/// Rounds up to whole blocks. Saturates, which every bound then refuses.
pub fn blocks(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(BLOCK_BYTES)
        .unwrap_or(u64::MAX - (BLOCK_BYTES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_power_of_two_of_at_most_a_sixteenth_of_the_limit() {
        for (limit, bucket) in [
            (16 << 20, 1 << 20),
            (100 << 20, 4 << 20),
            ((4 << 30) - 1, 128 << 20),
            (4 << 30, 256 << 20),
            (1 << 44, 256 << 20),
        ] {
            assert_eq!(Sizing::of(limit).unwrap().bucket_bytes, bucket, "{limit}");
        }
    }

    #[test]
    fn limits_that_are_too_small_are_refused_with_what_is_allowed() {
        let error = Sizing::of((16 << 20) - 1).unwrap_err().to_string();
        assert!(error.contains("at least 16 MiB"), "{error}");
        for size in [0, 3 << 20, 1 << 19, 512 << 20] {
            assert!(Sizing::with_bucket(1 << 40, size).is_err(), "{size}");
        }
        assert!(Sizing::with_bucket(1 << 40, 8 << 20).is_ok());
    }
}
