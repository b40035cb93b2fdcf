package hetzner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/lb"
)

// alreadyDone reports whether an error means that another client has made the change.
func alreadyDone(op lb.Op, err error) bool {
	switch op.(type) {
	case lb.Delete, lb.DeleteCertificate, lb.DeleteListener, lb.RemoveTarget, lb.DetachNetwork:
		return hcloud.IsError(err, hcloud.ErrorCodeNotFound)
	case lb.AddTarget:
		return hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined)
	}
	return false
}

// errStillThere means that the API replied not_found for an object that exists.
var errStillThere = errors.New("the API reports that it does not exist, but it does")

// confirm verifies that a change is done as the API reports. Deletions are not verified otherwise:
// the error wraps lb.ErrGone if the resource is deleted. target_already_defined for a pod may be
// about the same server at another address. Every other change is verified by the next read.
func (l *LoadBalancers) confirm(ctx context.Context, have lb.State, op lb.Op) error {
	var there bool
	var err error
	switch op := op.(type) {
	case lb.AddTarget:
		if op.Target.Pod() {
			return l.confirmPod(ctx, have, op.Target)
		}
		return nil
	case lb.Delete:
		var found *hcloud.LoadBalancer
		found, err = get(ctx, l.client.api.LoadBalancer.GetByID, have.ID)
		there = found != nil
	case lb.DeleteCertificate:
		var found *hcloud.Certificate
		found, err = get(ctx, l.client.api.Certificate.GetByID, op.ID)
		there = found != nil
	default:
		return nil
	}
	switch {
	case err != nil:
	case there:
		err = errStillThere
	default:
		err = lb.ErrGone
	}
	return fmt.Errorf("%s: %w", op, err)
}

func (l *LoadBalancers) confirmPod(ctx context.Context, have lb.State, pod lb.Target) error {
	found, err := l.find(ctx, hcloud.LoadBalancerListOpts{Name: have.Name})
	if err != nil {
		return fmt.Errorf("%s: %w", lb.AddTarget{Target: pod}, err)
	}
	for _, now := range found {
		if now.ID == have.ID && !slices.Contains(now.Targets, pod) {
			return &lb.RejectedError{
				Code: string(hcloud.ErrorCodeTargetAlreadyDefined), Target: true,
				Message: "the server is a target at another address",
				Remedy:  "the cloud takes one pod of each node then: let nodes have one each, or use nodes as targets",
			}
		}
	}
	return nil
}

// targetCodes are the error codes that concern a target. Some errors have two codes: the
// documented one and that of older versions of the API.
var targetCodes = []hcloud.ErrorCode{
	hcloud.ErrorCodeTargetAlreadyDefined, hcloud.ErrorCodeServerNotAttachedToNetwork,
	hcloud.ErrorCodeMissingIPv4,
	hcloud.ErrorCodeIPNotOwned, hcloud.ErrorCodeCloudResourceIPNotAllowed,
	"resolve_cloud_private_targets_error", "resolve_cloud_public_targets_error",
	"ip_not_assigned_to_server", "ip_not_in_vswitch_subnet", "network_has_no_vswitch_subnet",
}

// refusal converts permanent refusals of the API to lb's errors, and keeps temporary ones. The
// same cause has the same text, so that it is reported once: the API's own errors contain a
// different correlation ID each time.
func refusal(op lb.Op, name string, err error) error {
	if err == nil {
		return nil
	}
	kind := "load balancer"
	switch op := op.(type) {
	case lb.CreateCertificate:
		kind, name = "certificate", op.Certificate.Name
	case lb.RetryCertificate:
		kind, name = "certificate", op.Name
	case lb.DeleteCertificate:
		kind, name = "certificate", op.Name
	}
	var failed hcloud.ActionError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s %q: %w: %s (%s)", kind, name, lb.ErrFailed, failed.Message, failed.Code)
	}
	var apiErr hcloud.Error
	if !errors.As(err, &apiErr) || refusedForNow(err) || broken(err) || Unauthorized(err) {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	switch apiErr.Code {
	case hcloud.ErrorCodeForbidden, // caused by the token, not by the Service
		hcloud.ErrorCodeResourceInUse: // only until the listener is deleted
		return fmt.Errorf("%s %q: %w", kind, name, err)
	case hcloud.ErrorCodeUniquenessError:
		if rename, ok := op.(lb.Rename); ok {
			name = rename.Name
		}
		return fmt.Errorf("load balancer %q %w", name, lb.ErrNotOwned)
	case hcloud.ErrorCodeProtected:
		return fmt.Errorf("%s %q %w", kind, name, lb.ErrProtected)
	case hcloud.ErrorCodeNotFound:
		// The load balancer or a part of it was just deleted: the next read shows the current
		// state. A creation and a new target refer to objects that may never have existed.
		switch op.(type) {
		case lb.Create, lb.AddTarget:
		default:
			return fmt.Errorf("load balancer %q: %w", name, err)
		}
	}
	remedy := remedies()[apiErr.Code]
	if _, adds := op.(lb.AddTarget); adds && apiErr.Code == lb.CodeNotFound {
		remedy = "the project has no server with the ID of the Node's provider ID: delete the Node, " +
			"and restart its kubelet, so that it joins anew"
	}
	return &lb.RejectedError{
		Code: string(apiErr.Code), Message: explained(apiErr), Target: aboutTarget(op, apiErr.Code),
		Remedy: remedy,
	}
}

func remedies() map[hcloud.ErrorCode]string {
	const only = "only addresses of dedicated servers of the project's owner, and addresses in the network's vSwitch subnets, can be targets: "
	const elsewhere = "something else has got the primary IP: free it, or name another one"
	return map[hcloud.ErrorCode]string{
		hcloud.ErrorCodeServerNotAttachedToNetwork: lb.RemedyPrivate,
		"resolve_cloud_private_targets_error":      lb.RemedyPrivate,
		hcloud.ErrorCodeMissingIPv4:                lb.RemedyPublic,
		"resolve_cloud_public_targets_error":       lb.RemedyPublic,
		hcloud.ErrorCodeIPNotOwned: only +
			"see that the Node's addresses and provider ID are those of such a server, or label the Node " +
			excludeLabel,
		hcloud.ErrorCodeCloudResourceIPNotAllowed: "the address is a cloud server's: the Node's provider ID must begin with hcloud:// then",
		hcloud.ErrorCodePrimaryIPAssigned:         elsewhere,
		hcloud.ErrorCodePrimaryIPAlreadyAssigned:  elsewhere,
		hcloud.ErrorCodePrimaryIPVersionMismatch: "name one of the right family in each of " +
			lb.AnnotationPrimaryIPv4 + " and " + lb.AnnotationPrimaryIPv6,
		hcloud.ErrorCodePrimaryIPDatacenterMismatch: "set " + lb.AnnotationLocation +
			" to the primary IP's location",
		"ip_not_assigned_to_server": "only addresses out of the server's own /64 can be targets: see that the Node's provider ID names the server that has the Node's podCIDRs, or set underlay.dev/targets to nodes",
		"ip_not_in_vswitch_subnet": only +
			"set the kubelet's --node-ip to the server's address there, or use-private-ip to false",
		"network_has_no_vswitch_subnet": only +
			"add a subnet of type vswitch to the network, or set use-private-ip to false",
	}
}

const excludeLabel = "node.kubernetes.io/exclude-from-external-load-balancers"

// aboutTarget reports whether the op would succeed without a target. In a creation, not_found
// can mean an unknown server or something else, which a retry without targets determines.
func aboutTarget(op lb.Op, code hcloud.ErrorCode) bool {
	switch op := op.(type) {
	case lb.AddTarget:
		return code != hcloud.ErrorCodeResourceLimitExceeded
	case lb.Create:
		return len(op.Spec.Targets) > 0 &&
			(code == hcloud.ErrorCodeNotFound || slices.Contains(targetCodes, code))
	}
	return false
}

func explained(apiErr hcloud.Error) string {
	text := apiErr.Message
	if details, ok := apiErr.Details.(hcloud.ErrorDetailsInvalidInput); ok {
		for _, f := range details.Fields {
			text += fmt.Sprintf("; %s: %s", f.Name, strings.Join(f.Messages, ", "))
		}
	}
	return text
}
