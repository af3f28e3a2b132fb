//! Hazards of Redlock, with five real nodes: a minority of them dead, hung, black-holed or started again with nothing,
//! a majority gone.
