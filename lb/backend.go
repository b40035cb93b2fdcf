package lb

import (
	"context"
	"errors"
	"fmt"
)

// Backend is the cloud API that the controller uses.
type Backend interface {
	// Carrying returns all load balancers with a Service's label, including shared load balancers.
	Carrying(ctx context.Context, owner Owner) ([]State, error)
	// Candidates returns the load balancers that an owner without load balancer might take over:
	// by name, unless it is empty, and by LabelPeer.
	Candidates(ctx context.Context, owner Owner, name string) ([]State, error)
	// Certificates returns all certificates of the project, in as few requests as possible.
	Certificates(ctx context.Context) ([]Certificate, error)
	// PrimaryIPs returns the existing primary IPs among IDs and names; a number is an ID.
	PrimaryIPs(ctx context.Context, named []string) ([]PrimaryIP, error)
	// List returns all load balancers of a cluster, in as few requests as possible. Changes of
	// traffic may wait for it, unless it is for a periodic check.
	List(ctx context.Context, cluster string, periodic bool) ([]State, error)
	// Apply executes op on the observed load balancer and returns when it is done. Create detects
	// that an earlier Create succeeded. A missing object is an ordinary error, not a rejection,
	// because the next read resolves it.
	Apply(ctx context.Context, have State, op Op) error
	// ApplyTargets adds and removes targets in the order of ops and returns each op's error. A
	// failed op does not skip the next ones, unless the cloud accepts no change of the load
	// balancer for now.
	ApplyTargets(ctx context.Context, have State, ops []Op) []error
}

// Errors of a Backend that only a user can fix. Their texts must not change between attempts.
var (
	// ErrNotOwned: the name is taken by a load balancer without our labels.
	ErrNotOwned  = errors.New("has another owner")
	ErrAmbiguous = errors.New("more than one load balancer carries the labels of this Service: remove the underlay.dev labels from the copies")
	ErrProtected = errors.New("is protected against deletion: remove the protection in the cloud, or keep it by removing its underlay.dev labels")
)

// ErrFailed: the cloud accepted a change and failed to execute it. A retry may succeed.
var ErrFailed = errors.New("failed in the cloud")

// ErrGone: the object of a Delete or a DeleteCertificate does not exist, so there is nothing to
// do, unless the token belongs to another project.
var ErrGone = errors.New("is not there")

// Remedies for a server that has no address where targets are reached.
const (
	RemedyPrivate = "attach the server to the network, or set use-private-ip to false"
	RemedyPublic  = "give the server a public IPv4 address, or set use-private-ip to true"
)

// CodeNotFound is the API's error code for an object that does not exist in the project.
const CodeNotFound = "not_found"

// RejectedError is a request that the cloud will refuse again until something else changes.
type RejectedError struct {
	Code    string // the API's error code
	Message string
	// Target is true if the cloud rejected a target, not the load balancer.
	Target bool
	// Remedy is advice for the user, if Message has none.
	Remedy string
}

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("%s (%s)", e.Message, e.Code)
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}
