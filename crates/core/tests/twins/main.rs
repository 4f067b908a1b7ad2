//! The checker, the order and the pool beside naive twins, whose order is plain reachability (`millpond-reach`).

mod answers;
mod order;
mod pool_twin;
