// Package requests schedules the requests to a cloud's API by priority and then in FIFO order,
// each as soon as its budget allows.
//
// Budgets differ between APIs (one per project that refills, one per operation and hour), so a
// [Queue] takes a [Budget] from its caller. All requests use the transport of [NewTransport].
// The package is independent of any API, sends no requests itself, and must never let a request
// overtake a more urgent one.
package requests
