// Package hcloudsim is a stateful simulator of the Hetzner Cloud API: a
// program written for the real one, hcloud-go above all, must not be able to
// tell. It exists so that controllers can be proved against limits, locks,
// slow actions and lost replies without renting anything.
//
// A [Simulator] is one project. It is an [http.Handler] for the API below /v1,
// and through [Simulator.Transport] an [http.RoundTripper] that needs no
// socket and no goroutine. It has no clock of its own: what time changes
// (running actions, the rate limit, the health of targets) is worked out from
// [time.Now] when someone looks, so under testing/synctest everything happens
// on the bubble's clock.
//
// How it is built, from the outside in:
//
//   - exchange.go takes a request through fault, rate limit, authentication
//     and routing, and writes the log;
//   - endpoints.go is the API's surface, one row for each operation;
//   - one group of files for each resource: the endpoint reads the request,
//     a rule judges it against the state, a [change] carries it out;
//   - project.go, action.go and lock.go are the core: what exists, what is
//     still happening, and what may not be touched meanwhile.
//
// Everything that the API answers asynchronously is a change: it checks that
// what it touches is free, holds it while its action runs, and shows its
// effect when the action ends (or at once, see [Options.EffectsAtOnce]).
// What a running action builds (an address, a route) already holds its place,
// so nothing else can take it, but is not yet shown.
//
// The simulator must never answer 5xx of its own accord, must never answer success to what it did
// not do (an operation that is missing is 404), and must never start a goroutine: only
// [Options.OnChange] has a timer, because who listens doesn't look, and [Simulator.RunHealthChecks]
// belongs to its caller. It knows nothing of Kubernetes.
//
// The facts are those of Hetzner's OpenAPI description
// (https://docs.hetzner.cloud/reference/cloud), and of hcloud-go's schema where
// that is newer. Where no source says what the API does, the behavior is an
// option or is named as a decision in docs/how-to/hcloud-sim.md.
package hcloudsim
