// Package robotsim is a stateful simulator of Hetzner's Robot web service, the
// API of dedicated servers: servers, vSwitches with their members and their
// coupling with cloud networks, failover addresses. It stands beside package
// hcloudsim, which simulates the cloud, and is used like it.
//
// A [Simulator] is one customer's account. It is an [http.Handler], and through
// [Simulator.Transport] an [http.RoundTripper] that needs no socket. It has no
// clock of its own and starts no goroutine: what time changes (members that are
// in process, failover addresses on their way, quotas, blocked addresses,
// cancellations) is worked out from [time.Now] when someone looks, so under
// testing/synctest everything happens on the bubble's clock.
//
// A request goes through exchange.go: an injected fault's delay and lost
// connection, maintenance, login and block (login.go), quota (quota.go), an
// injected fault's refusal, and then the operation that it names (operations.go
// is the whole surface, with each operation's quota and errors).
// One file for each resource carries it out; state.go prints everything that
// exists and reads it back.
//
// It must never answer success to what it did not do: an operation that is
// missing is 404. It knows nothing of Kubernetes.
//
// The facts are those of the web service's documentation
// (https://robot.hetzner.com/doc/webservice/en.html). Where no source says what
// the service does, the behavior is an option or is named as a decision in
// docs/how-to/hcloud-sim.md.
package robotsim
