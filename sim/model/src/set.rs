//! A sorted vector used as a set: small, cheap to clone, and equal sets hash equally.

/// A set of a handful of elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SmallSet<T>(Vec<T>);

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord + Clone> SmallSet<T> {
    /// Adds an element; says whether it was new.
    pub fn insert(&mut self, item: T) -> bool {
        match self.0.binary_search(&item) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, item);
                true
            }
        }
    }

    /// Takes an element out; says whether it was there.
    pub fn remove(&mut self, item: &T) -> bool {
        match self.0.binary_search(item) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Says whether the element is in the set.
    pub fn contains(&self, item: &T) -> bool {
        self.0.binary_search(item).is_ok()
    }

    /// Takes out and returns all elements that match.
    pub fn take_where(&mut self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let (taken, kept) = std::mem::take(&mut self.0).into_iter().partition(matches);
        self.0 = kept;
        taken
    }

    /// Keeps only the elements that match.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Walks the elements in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Says whether any element matches.
    pub fn any(&self, matches: impl FnMut(&T) -> bool) -> bool {
        self.0.iter().any(matches)
    }
}
