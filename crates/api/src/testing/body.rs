//! Bodies that come as a test wants them to.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body that announces this length, if any, and whose parts come from `next`.
pub(crate) fn body(
    length: Option<usize>,
    next: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send + Sync + 'static,
) -> TestBody {
    let length = length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length as u64));
    TestBody { length, next: Box::new(next) }
}

type Next = dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send + Sync;

/// See [`body`].
pub(crate) struct TestBody {
    length: SizeHint,
    next: Box<Next>,
}

impl HttpBody for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        (self.next)(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length
    }
}
