//! Assertions of the engine. They end a server, which must not go on with data that contradict each other; a
//! verification reports them.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// Runs `work`; the message of an assertion that failed in it.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(|context| {
        // After a panic the future is dropped, and nothing it had is used.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(message(&*panic))),
        }
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("an assertion failed").lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::Pin,
        task::{Context, Waker},
    };

    #[test]
    fn an_assertion_becomes_its_message_and_anything_else_passes() {
        let poll = |work: Pin<&mut dyn Future<Output = Result<u8, String>>>| {
            work.poll(&mut Context::from_waker(Waker::noop()))
        };
        let numbered =
            caught(async { if poll_fn(|_| Poll::Ready(true)).await { panic!("page {}", 7) } else { 1 } });
        assert_eq!(poll(pin!(numbered)), Poll::Ready(Err("page 7".to_owned())));
        let plain =
            caught(async { if poll_fn(|_| Poll::Ready(true)).await { panic!("one\ntwo") } else { 1 } });
        assert_eq!(poll(pin!(plain)), Poll::Ready(Err("one".to_owned())));
        assert_eq!(poll(pin!(caught(async { 1 }))), Poll::Ready(Ok(1)));
    }
}
