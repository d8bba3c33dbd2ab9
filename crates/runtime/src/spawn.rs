//! Tasks that belong to somebody: cancelled by a token, joined at the end, panics seen.

use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request to stop, seen by everybody who holds a clone.
#[derive(Debug, Clone)]
pub struct Cancel {
    flag: Arc<watch::Sender<bool>>,
}

impl Cancel {
    /// Not cancelled yet.
    pub fn new() -> Self {
        Cancel {
            flag: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Asks everybody to stop; stays so.
    pub fn cancel(&self) {
        self.flag.send_replace(true);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        *self.flag.borrow()
    }

    /// Waits for [`Cancel::cancel`].
    ///
    /// # Cancellation
    /// Safe.
    pub async fn cancelled(&self) {
        let mut watcher = self.flag.subscribe();
        // The sender is held by `self`, so waiting ends only by the flag.
        watcher.wait_for(|cancelled| *cancelled).await.ok();
    }

    /// Runs a future until it ends or the request comes; `None` then, and the future is dropped.
    ///
    /// # Cancellation
    /// As safe as the future.
    pub async fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.cancelled() => None,
            output = future => Some(output),
        }
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a set of tasks did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// Some task panicked; the panic itself was printed when it happened.
    #[error("task {name} panicked")]
    Panicked {
        /// The task's name.
        name: &'static str,
    },
    /// Tasks that were asked to stop were still running at the deadline and were aborted.
    #[error("{count} tasks were still running {waited:?} after they were asked to stop")]
    Late {
        /// How many.
        count: usize,
        /// How long they were waited for.
        waited: Duration,
    },
}

#[derive(Debug)]
struct Shared {
    cancel: Cancel,
    tasks: Mutex<JoinSet<()>>,
    panicked: Mutex<Option<&'static str>>,
    started: AtomicU64,
    max: usize,
}

/// Owns tasks. Clones own the same ones. When a task panics the whole set is cancelled, since what the
/// task shared with others may be half-changed.
#[derive(Debug, Clone)]
pub struct TaskSet {
    shared: Arc<Shared>,
}

/// The set has as many tasks as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no more than {max} tasks may run at once")]
pub struct Full {
    /// The bound.
    pub max: usize,
}

impl TaskSet {
    /// A set of at most `max` tasks at once.
    pub fn new(max: usize) -> Self {
        TaskSet {
            shared: Arc::new(Shared {
                cancel: Cancel::new(),
                tasks: Mutex::new(JoinSet::new()),
                panicked: Mutex::new(None),
                started: AtomicU64::new(0),
                max,
            }),
        }
    }

    /// The token that asks this set's tasks to stop.
    pub fn cancel_token(&self) -> &Cancel {
        &self.shared.cancel
    }

    /// Asks all tasks to stop, without waiting.
    pub fn cancel(&self) {
        self.shared.cancel.cancel();
    }

    /// Starts a task on the current runtime. It should end soon after the token asks it to.
    ///
    /// # Errors
    /// When the set is full; the future is dropped unpolled then.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> Result<(), Full>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_on(&Handle::current(), name, task)
    }

    /// As [`TaskSet::spawn`], on a given runtime.
    ///
    /// # Errors
    /// As [`TaskSet::spawn`].
    pub fn spawn_on<F>(&self, runtime: &Handle, name: &'static str, task: F) -> Result<(), Full>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = self.shared.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= self.shared.max {
            return Err(Full {
                max: self.shared.max,
            });
        }
        self.shared.started.fetch_add(1, Ordering::Relaxed);
        let watch = Watch {
            name,
            shared: Arc::clone(&self.shared),
        };
        tasks.spawn_on(
            async move {
                let _watch = watch;
                task.await;
            },
            runtime,
        );
        Ok(())
    }

    /// Tasks that have not ended.
    pub fn running(&self) -> usize {
        let mut tasks = self.shared.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.len()
    }

    /// The name of the first task that panicked.
    pub fn panicked(&self) -> Option<&'static str> {
        *self.shared.panicked.lock()
    }

    /// Asks all tasks to stop and waits for them; those that have not ended in time are aborted.
    ///
    /// # Errors
    /// When a task panicked, now or before, or had to be aborted.
    ///
    /// # Cancellation
    /// Dropping the future aborts what has not ended.
    pub async fn shutdown(&self, patience: Duration) -> Result<(), TasksError> {
        self.cancel();
        let mut tasks = std::mem::take(&mut *self.shared.tasks.lock());
        let ended = tokio::time::timeout(patience, async {
            while tasks.join_next().await.is_some() {}
        })
        .await;
        let late = tasks.len();
        tasks.shutdown().await;
        if let Some(name) = self.panicked() {
            return Err(TasksError::Panicked { name });
        }
        match ended {
            Ok(()) => Ok(()),
            Err(_) => Err(TasksError::Late {
                count: late,
                waited: patience,
            }),
        }
    }
}

/// Notices that a task unwinds.
struct Watch {
    name: &'static str,
    shared: Arc<Shared>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.panicked.lock().get_or_insert(self.name);
            self.shared.cancel.cancel();
            tracing::error!(task = self.name, "a task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn tasks_are_asked_to_stop_and_joined() {
        runtime().block_on(async {
            let set = TaskSet::new(10);
            let (done, mut ended) = tokio::sync::mpsc::channel(10);
            for _ in 0..3 {
                let (cancel, done) = (set.cancel_token().clone(), done.clone());
                set.spawn("waiter", async move {
                    cancel.cancelled().await;
                    done.send(()).await.unwrap();
                })
                .unwrap();
            }
            drop(done);
            assert_eq!(set.running(), 3);
            set.shutdown(PATIENCE).await.unwrap();
            for _ in 0..3 {
                assert_eq!(ended.recv().await, Some(()));
            }
            assert_eq!((ended.recv().await, set.running()), (None, 0));
        });
    }

    #[test]
    fn a_panic_cancels_the_set_and_is_told() {
        runtime().block_on(async {
            let set = TaskSet::new(10);
            set.spawn("faulty", async { panic!("on purpose") }).unwrap();
            set.cancel_token().cancelled().await;
            assert_eq!(set.panicked(), Some("faulty"));
            let end = set.shutdown(PATIENCE).await;
            assert_eq!(end, Err(TasksError::Panicked { name: "faulty" }));
        });
    }

    #[test]
    fn a_task_that_does_not_stop_is_aborted_and_told() {
        runtime().block_on(async {
            let set = TaskSet::new(1);
            set.spawn("stubborn", std::future::pending()).unwrap();
            assert_eq!(set.spawn("one too many", async {}), Err(Full { max: 1 }));
            let end = set.shutdown(Duration::from_millis(10)).await;
            assert!(
                matches!(end, Err(TasksError::Late { count: 1, .. })),
                "{end:?}"
            );
        });
    }
}
