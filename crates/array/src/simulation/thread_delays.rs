//! Delays between the steps of threads that wait for each other. In a simulated world all pools are on one
//! thread; a thread of its own would also do other things between two steps.

#[cfg(feature = "simulation")]
mod drawn {
    use std::{cell::RefCell, time::Duration};
    use world::{Random, World};

    thread_local! {
        static DELAYS: RefCell<Option<(Random, u64)>> = const { RefCell::new(None) };
    }

    /// Ends the delays when dropped.
    #[derive(Debug)]
    pub struct ThreadDelays(());

    /// Delays all steps of this thread by up to `most_us` microseconds each.
    #[doc(hidden)]
    pub fn begin(seed: u64, most_us: u64) -> ThreadDelays {
        let before = DELAYS.replace(Some((Random::new(seed, "thread delays"), most_us)));
        assert!(before.is_none(), "one run at a time");
        ThreadDelays(())
    }

    impl Drop for ThreadDelays {
        fn drop(&mut self) {
            DELAYS.set(None);
        }
    }

    /// Waits as long as another thread might be busy.
    pub(crate) async fn pass(world: &World) {
        let delay = DELAYS.with_borrow_mut(|delays| {
            let (random, most_us) = delays.as_mut()?;
            (*most_us > 0).then(|| random.below(*most_us + 1))
        });
        if let Some(delay_us) = delay {
            world.sleep(Duration::from_micros(delay_us)).await;
        }
    }
}

#[cfg(feature = "simulation")]
pub(crate) use drawn::pass;
#[cfg(feature = "simulation")]
pub use drawn::{ThreadDelays, begin};

/// Does nothing without the feature.
#[cfg(not(feature = "simulation"))]
pub(crate) async fn pass(_: &world::World) {}
