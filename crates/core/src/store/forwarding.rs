//! Forwards calls to an inner store, for stores that change only a few of them.
//!
//! A forwarded call hands on the future of the inner store: it costs no allocation of its own.

/// Inside an `impl Store`, makes the named methods call the same method of the field `$inner`.
///
/// ```text
/// #[async_trait]
/// impl Store for Wrapper {
///     async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> { … }
///     forward_store!(inner: insert_all, claim, start, apply, apply_as, extend, get, live, results,
///         list, heads, overdue, counts, live_counts, quarantined, check, close);
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    ($inner:ident: $($method:ident),+ $(,)?) => { $($crate::forward_store!(@$method $inner);)+ };
    (@insert $inner:ident) => {
        $crate::forward_store!(=> $inner.insert(tasks: Vec<$crate::task::NewTask>) -> Vec<$crate::store::Inserted>);
    };
    (@insert_all $inner:ident) => {
        $crate::forward_store!(=> $inner.insert_all(tasks: Vec<$crate::task::NewTask>) -> Vec<$crate::store::Inserted>);
    };
    (@claim $inner:ident) => {
        $crate::forward_store!(=> $inner.claim(claims: Vec<$crate::store::Claim>) -> Vec<$crate::store::Claimed>);
    };
    (@start $inner:ident) => {
        $crate::forward_store!(=> $inner.start(starts: Vec<$crate::store::Start>) -> Vec<Option<$crate::task::Task>>);
    };
    (@apply $inner:ident) => {
        $crate::forward_store!(=> $inner.apply(changes: Vec<($crate::ids::TaskId, $crate::state::Change)>)
            -> Vec<$crate::store::Applied>);
    };
    (@apply_as $inner:ident) => {
        $crate::forward_store!(=> $inner.apply_as(&lease: $crate::coordinator::LeaderLease,
            changes: Vec<($crate::ids::TaskId, $crate::state::Change)>) -> Option<Vec<$crate::store::Applied>>);
    };
    (@extend $inner:ident) => {
        $crate::forward_store!(=> $inner.extend(beats: Vec<$crate::store::Beat>) -> Vec<Option<$crate::task::Hold>>);
    };
    (@get $inner:ident) => {
        $crate::forward_store!(=> $inner.get(&tenant: str, ids: Vec<$crate::ids::TaskId>)
            -> Vec<Option<$crate::task::Task>>);
    };
    (@live $inner:ident) => {
        $crate::forward_store!(=> $inner.live(ids: Vec<$crate::ids::TaskId>) -> Vec<$crate::ids::TaskId>);
    };
    (@results $inner:ident) => {
        $crate::forward_store!(=> $inner.results(ids: Vec<$crate::ids::TaskId>, max_bytes: usize)
            -> Vec<Option<$crate::store::TaskResult>>);
    };
    (@list $inner:ident) => {
        $crate::forward_store!(=> $inner.list(filter: $crate::store::Filter, after: Option<$crate::store::Cursor>,
            limit: usize) -> $crate::store::Page);
    };
    (@heads $inner:ident) => {
        $crate::forward_store!(=> $inner.heads(after: Option<$crate::lane::LaneId>, before: $crate::time::Timestamp,
            limit: usize) -> Vec<$crate::store::Head>);
    };
    (@overdue $inner:ident) => {
        $crate::forward_store!(=> $inner.overdue(dead: Vec<$crate::ids::NodeId>, limit: usize)
            -> Vec<$crate::task::Task>);
    };
    (@counts $inner:ident) => { $crate::forward_store!(=> $inner.counts() -> Vec<$crate::store::Count>); };
    (@live_counts $inner:ident) => { $crate::forward_store!(=> $inner.live_counts() -> $crate::queues::LiveCounts); };
    (@quarantined $inner:ident) => { $crate::forward_store!(=> $inner.quarantined() -> u64); };
    (@check $inner:ident) => { $crate::forward_store!(=> $inner.check() -> ()); };
    (@close $inner:ident) => { $crate::forward_store!(=> $inner.close() -> ()); };
    // The signatures are those that `async_trait` makes.
    (=> $inner:ident.$method:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            $($name: $type),*
        ) -> $crate::store::StoreFuture<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.$method($($name),*)
        }
    };
    (=> $inner:ident.$method:ident(&$first:ident: $borrowed:ty, $($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $method<'life0, 'life1, 'async_trait>(
            &'life0 self,
            $first: &'life1 $borrowed,
            $($name: $type),*
        ) -> $crate::store::StoreFuture<'async_trait, $answer>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.$method($first, $($name),*)
        }
    };
}
