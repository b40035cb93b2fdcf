// Package robotsim is a stateful simulator of Hetzner's Robot web service, the API of dedicated
// servers: servers, vSwitches with their members and their coupling with cloud networks, and
// failover addresses. It complements package hcloudsim, which simulates the cloud, and is used in
// the same way.
//
// A [Simulator] is one customer's account, an [http.Handler] and by its Transport an
// [http.RoundTripper]. State that depends on time (members in process, failover addresses being
// switched, quotas, blocked addresses) is computed from [time.Now] on each access.
//
// exchange.go passes a request through maintenance, login and block (login.go), quota, an injected
// refusal, and then the operation (operations.go lists all operations with their quotas and
// errors). Each resource has a file with its operations.
//
// The simulator must never report success for an operation that it did not perform: unsupported
// operations return 404. The package has no knowledge of Kubernetes.
//
// The behavior follows the web service's documentation
// (https://robot.hetzner.com/doc/webservice/en.html). Behavior that no source documents is an
// option, or is listed as a decision in docs/how-to/hcloud-sim.md.
package robotsim
