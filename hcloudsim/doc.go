// Package hcloudsim is a stateful simulator of the Hetzner Cloud API. Clients of the real API,
// hcloud-go above all, must not be able to distinguish the two. It exists to test controllers
// against limits, locks, slow actions and lost replies without rented servers.
//
// A [Simulator] is one project: an [http.Handler] for the API below /v1, and by its Transport an
// [http.RoundTripper] that needs no socket and no goroutine. State that depends on time (running
// actions, the rate limit, target health) is computed from [time.Now] on each access, so under
// testing/synctest it follows the bubble's clock.
//
// Structure, from the outside in:
//
//   - package httpsim takes a request off the wire, injects faults and keeps the request log;
//   - exchange.go passes it through rate limit, authentication and routing;
//   - endpoints.go collects the API's surface, one row per operation;
//   - kind.go has the operations that all kinds of resources have in common: a kind is a row;
//   - each resource has a group of files: the endpoint parses the request, a rule validates
//     it against the state, and a [change] applies it;
//   - project.go and action.go are the core: resources, locks and running actions.
//
// Every asynchronous operation of the API is a change. It checks that the resources involved are
// idle, holds them while its action runs, and shows its effect when the action ends (or at once,
// see [Options.EffectsAtOnce]). An address or route that a running action creates is already
// reserved, but not yet visible.
//
// The simulator must never respond with 5xx on its own, must never report success for an
// operation that it did not perform (unsupported operations return 404), and must never start a
// goroutine. Two exceptions: [Options.OnChange] has a timer, because its receiver does not poll,
// and [Simulator.RunHealthChecks] belongs to its caller. The package has no knowledge of
// Kubernetes, except that labels and their selectors have the same grammar.
//
// The behavior follows Hetzner's OpenAPI description
// (https://docs.hetzner.cloud/reference/cloud), and hcloud-go's schema where that is newer.
// Behavior that no source documents is an option, or is listed as a decision in
// docs/how-to/hcloud-sim.md.
package hcloudsim
