//! A connection whose client is not waited for without end: for the head of a request that it has
//! begun, and for it to take what it is sent (N3). How long a connection may do nothing, and a body
//! may take, is seen to elsewhere.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::config::Limits;
use crate::metrics::{Metrics, Refusal};
use crate::patience::Credit;

/// Whether a request is under way on a connection: then what comes is no head.
#[derive(Clone, Debug, Default)]
pub struct UnderWay(Arc<AtomicU32>);

impl UnderWay {
    pub fn begin(&self) -> RequestUnderWay {
        self.0.fetch_add(1, Ordering::Relaxed); // The one before may not be dropped yet.
        RequestUnderWay(Arc::clone(&self.0))
    }

    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A request under way, until this is dropped.
#[derive(Debug)]
pub struct RequestUnderWay(Arc<AtomicU32>);

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream with a patience that ends.
#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    metrics: Arc<Metrics>,
    under_way: UnderWay,
    /// Time for a head.
    patience: Duration,
    head_since: Option<Instant>,
    /// For waiting that the client takes something.
    credit: Credit,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub fn new(stream: S, limits: &Limits, metrics: Arc<Metrics>, under_way: UnderWay) -> Self {
        Paced {
            stream,
            metrics,
            under_way,
            patience: limits.first_byte,
            // The first one is to begin at once.
            head_since: Some(Instant::now()),
            credit: Credit::new(limits),
            waiting_since: None,
            timer: None,
        }
    }

    /// Waits until then; an error when that is over.
    fn wait<T>(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        match timer.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.metrics.note_refusal(Refusal::Slow);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// A write has got so far.
    fn wrote<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        count: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(written) = written else {
            let since = *self.waiting_since.get_or_insert_with(Instant::now);
            return self.wait(since + self.credit.left(), context);
        };
        if let Ok(written) = &written {
            if let Some(since) = self.waiting_since.take() {
                self.credit.spend(since.elapsed());
            }
            self.credit.earn(count(written));
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, into);
        if this.under_way.is() {
            this.head_since = None;
            return read;
        }
        match (&read, this.head_since) {
            (Poll::Ready(Ok(())), None) if into.filled().len() > before => {
                this.head_since = Some(Instant::now());
            }
            (Poll::Pending, Some(since)) => return this.wait(since + this.patience, context),
            _ => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(written, |count| *count, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.wrote(written, |count| *count, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.wrote(flushed, |()| 0, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        this.wrote(shut, |()| 0, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn limits() -> Limits {
        let first_byte = Duration::from_millis(30);
        Limits { first_byte, rate_min: 1 << 20, ..Limits::default() }
    }

    #[tokio::test]
    async fn who_takes_nothing_is_not_waited_for() {
        let (stream, _kept) = tokio::io::duplex(1 << 10);
        let metrics = Arc::new(Metrics::default());
        let mut paced = Paced::new(stream, &limits(), Arc::clone(&metrics), UnderWay::default());
        let error = paced.write_all(&vec![0; 1 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(metrics.refusals(Refusal::Slow), 1);
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_is_not_waited_for_but_a_request_is() {
        let (stream, mut client) = tokio::io::duplex(1 << 10);
        let under_way = UnderWay::default();
        let mut paced =
            Paced::new(stream, &limits(), Arc::new(Metrics::default()), under_way.clone());
        client.write_all(b"GET").await.unwrap();
        let mut byte = [0; 3];
        paced.read_exact(&mut byte).await.unwrap();
        let request = under_way.begin();
        let waited = tokio::time::timeout(Duration::from_millis(90), paced.read_u8()).await;
        assert!(waited.is_err(), "the request takes as long as it takes");
        drop(request);
        client.write_all(b"G").await.unwrap();
        paced.read_u8().await.unwrap();
        let error = paced.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
