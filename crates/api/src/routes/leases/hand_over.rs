//! The hand-over of leases to a worker that may have hung up.
//!
//! Between the claim and the last moment before the answer goes out, the worker may go. Then hyper
//! drops the answer, or the socket knows of it; either way the tasks go to another worker at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use punctual_scheduler::polls::HandOver;

use crate::server::Peer;

/// The same answer, which confirms the hand-over when it is sent to a peer that is still there.
pub(super) fn confirmed_when_sent(answer: Response, hand_over: HandOver, peer: Option<Peer>) -> Response {
    answer.map(|body| Body::new(LeaseBody { body, hand_over: Some(hand_over), peer }))
}

struct LeaseBody {
    body: Body,
    /// Until the first bytes are sent.
    hand_over: Option<HandOver>,
    peer: Option<Peer>,
}

impl HttpBody for LeaseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(hand_over) = self.hand_over.take() {
            if self.peer.as_ref().is_some_and(Peer::has_hung_up) {
                let gone = io::Error::new(io::ErrorKind::ConnectionReset, "the worker has hung up");
                return Poll::Ready(Some(Err(axum::Error::new(gone))));
            }
            hand_over.confirm();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.hand_over.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
