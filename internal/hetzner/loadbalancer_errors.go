package hetzner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/lb"
)

// alreadyDone says whether an error means that somebody else has done the op.
func alreadyDone(op lb.Op, err error) bool {
	switch op.(type) {
	case lb.Delete, lb.DeleteListener, lb.RemoveTarget, lb.DetachNetwork:
		return hcloud.IsError(err, hcloud.ErrorCodeNotFound)
	case lb.AddTarget:
		return hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined)
	}
	return false
}

// targetCodes are the refusals that concern a target. Some have two names: the
// description's, and the one that older versions of the API answered.
var targetCodes = []hcloud.ErrorCode{
	hcloud.ErrorCodeTargetAlreadyDefined, hcloud.ErrorCodeServerNotAttachedToNetwork, hcloud.ErrorCodeMissingIPv4,
	hcloud.ErrorCodeIPNotOwned, hcloud.ErrorCodeCloudResourceIPNotAllowed,
	"resolve_cloud_private_targets_error", "resolve_cloud_public_targets_error",
	"ip_not_assigned_to_server", "ip_not_in_vswitch_subnet", "network_has_no_vswitch_subnet",
}

// refusal turns what the API said no to into lb's errors, and leaves what may
// pass as it is. Its texts are the same for the same cause, so that a user is
// told once: the API's own error prints a different correlation ID each time.
func (l *LoadBalancers) refusal(op lb.Op, name string, err error) error {
	var said hcloud.Error
	if !errors.As(err, &said) || refusedForNow(err) || broken(err) || Unauthorized(err) {
		return fmt.Errorf("load balancer %q: %w", name, err)
	}
	switch said.Code {
	case hcloud.ErrorCodeForbidden:
		return fmt.Errorf("load balancer %q: %w", name, err) // the token, which is nobody's Service
	case hcloud.ErrorCodeUniquenessError:
		if update, ok := op.(lb.Update); ok {
			name = update.Name
		}
		return fmt.Errorf("load balancer %q %w", name, lb.ErrNotOwned)
	case hcloud.ErrorCodeProtected:
		return fmt.Errorf("load balancer %q %w", name, lb.ErrProtected)
	case hcloud.ErrorCodeNotFound:
		// The load balancer, or a part of it, was there a moment ago: the next look will see what is
		// left. A creation and a new target name things that may never have been there.
		switch op.(type) {
		case lb.Create, lb.AddTarget:
		default:
			return fmt.Errorf("load balancer %q: %w", name, err)
		}
	}
	return &lb.RejectedError{Code: string(said.Code), Message: explained(said), Target: aboutTarget(op, said.Code)}
}

// aboutTarget says whether the op would succeed without a target. In a creation
// an unknown server is not_found, which could be other things as well; trying
// without targets finds out.
func aboutTarget(op lb.Op, code hcloud.ErrorCode) bool {
	switch op := op.(type) {
	case lb.AddTarget:
		return code != hcloud.ErrorCodeResourceLimitExceeded
	case lb.Create:
		if len(op.Spec.Targets) == 0 {
			return false
		}
		for _, c := range targetCodes {
			if c == code {
				return true
			}
		}
		return code == hcloud.ErrorCodeNotFound
	}
	return false
}

// explained is the API's message with the fields that it complains about.
func explained(said hcloud.Error) string {
	text := said.Message
	if details, ok := said.Details.(hcloud.ErrorDetailsInvalidInput); ok {
		for _, f := range details.Fields {
			text += fmt.Sprintf("; %s: %s", f.Name, strings.Join(f.Messages, ", "))
		}
	}
	return text
}
