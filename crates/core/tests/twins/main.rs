//! The checker, the order and the pool compared with naive twins, whose order is plain reachability (`millpond-reach`).

mod effects;
mod order;
mod pool_twin;
