//! Counts repeated parts of a message before memory is spent on them.
//!
//! An empty sub-message takes two bytes on the wire and a hundred or more in memory, so a frame of
//! the allowed size could otherwise unfold to gigabytes. All repeated parts of the schema stand at
//! the second level (in a call, an answer or a link message), which one linear walk can see.

use crate::error::DecodeError;

/// What one occurrence of a field adds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Counted {
    /// One item.
    Messages,
    /// As many numbers as are packed in it.
    Varints,
}

/// A bound on one repeated field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Field of the outer message: which call, answer or link message.
    pub(crate) outer: u32,
    /// Field in it.
    pub(crate) inner: u32,
    pub(crate) counted: Counted,
    pub(crate) max: usize,
    pub(crate) name: &'static str,
}

/// A repeated sub-message.
pub(crate) const fn messages(outer: u32, inner: u32, max: usize, name: &'static str) -> Bound {
    Bound {
        outer,
        inner,
        counted: Counted::Messages,
        max,
        name,
    }
}

/// Repeated numbers.
pub(crate) const fn varints(outer: u32, inner: u32, max: usize, name: &'static str) -> Bound {
    Bound {
        outer,
        inner,
        counted: Counted::Varints,
        max,
        name,
    }
}

/// Most bounds of one message.
const BOUNDS_MAX: usize = 16;

/// Fails when a message has more of something than its bounds allow.
pub(crate) fn check(body: &[u8], bounds: &[Bound]) -> Result<(), DecodeError> {
    debug_assert!(bounds.len() <= BOUNDS_MAX, "too many bounds");
    let mut counts = [0usize; BOUNDS_MAX];
    let mut outer = Fields { rest: body };
    while let Some(field) = outer.next()? {
        let Some(message) = field.bytes else { continue };
        if bounds.iter().all(|bound| bound.outer != field.number) {
            continue;
        }
        let mut inner = Fields { rest: message };
        while let Some(part) = inner.next()? {
            let hits = bounds.iter().zip(&mut counts);
            let hit = |(bound, _): &(&Bound, _)| {
                bound.outer == field.number && bound.inner == part.number
            };
            for (bound, count) in hits.filter(hit) {
                *count += match (bound.counted, part.bytes) {
                    // Every number ends with a byte below 0x80.
                    (Counted::Varints, Some(packed)) => {
                        packed.iter().filter(|b| **b < 0x80).count()
                    }
                    _ => 1,
                };
                if *count > bound.max {
                    return Err(DecodeError::TooMany {
                        field: bound.name,
                        given: *count,
                        max: bound.max,
                    });
                }
            }
        }
    }
    Ok(())
}

struct Field<'a> {
    number: u32,
    /// The content of a length-delimited field.
    bytes: Option<&'a [u8]>,
}

/// Walks the fields of one level.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<Field<'a>>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number =
            u32::try_from(tag >> 3).map_err(|_| malformed("a field number is too large"))?;
        let bytes = match tag & 7 {
            0 => {
                self.varint()?;
                None
            }
            1 => {
                self.take(8)?;
                None
            }
            2 => {
                let len = self.varint()?;
                Some(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                None
            }
            _ => return Err(malformed("a field has a wire type that is not used")),
        };
        Ok(Some(Field { number, bytes }))
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self
                .rest
                .split_first()
                .ok_or_else(|| malformed("a number is cut off"))?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number has more than ten bytes"))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let cut = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len));
        let (bytes, rest) = cut.ok_or_else(|| malformed("a field is cut off"))?;
        self.rest = rest;
        Ok(bytes)
    }
}

fn malformed(reason: &str) -> DecodeError {
    DecodeError::Malformed {
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[Bound] = &[messages(1, 5, 3, "items"), varints(1, 4, 3, "lens")];

    #[test]
    fn items_are_counted_over_all_occurrences_of_the_outer_message() {
        let two = [0x0a, 4, 0x2a, 0, 0x2a, 0];
        assert_eq!(check(&two, BOUNDS), Ok(()));
        let four = [two, two].concat();
        assert!(matches!(
            check(&four, BOUNDS),
            Err(DecodeError::TooMany {
                given: 4,
                max: 3,
                ..
            })
        ));
    }

    #[test]
    fn packed_and_unpacked_numbers_are_counted_alike() {
        let packed = [0x0a, 6, 0x22, 4, 0x80, 0x01, 1, 1];
        assert_eq!(check(&packed, BOUNDS), Ok(()));
        let packed = [0x0a, 6, 0x22, 4, 1, 1, 1, 1];
        assert!(check(&packed, BOUNDS).is_err());
        let unpacked = [0x0a, 8, 0x20, 1, 0x20, 1, 0x20, 1, 0x20, 1];
        assert!(check(&unpacked, BOUNDS).is_err());
    }

    #[test]
    fn cut_off_and_unused_encodings_are_refused() {
        for bad in [
            &[0x0a, 9, 1][..],
            &[0x80],
            &[0x0b],
            &[0x0a, 2, 0x2a, 7],
            &[0xff; 11],
        ] {
            assert!(
                matches!(check(bad, BOUNDS), Err(DecodeError::Malformed { .. })),
                "{bad:?}"
            );
        }
    }
}
