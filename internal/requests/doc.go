// Package requests orders the requests to a cloud's API: by priority, then first
// come, first served, each as soon as its budget allows.
//
// What a budget is differs between APIs (one for a project that refills, one for
// each operation and hour), so a [Queue] asks a [Budget] that its user brings.
// [NewTransport] is the way that all of them take. The package knows no API,
// sends nothing, and must never let a request pass another that is more urgent.
package requests
