package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Absent reports whether an API server said that there is no object of that name; resource is of
// the core group. A 404 alone does not: proxies and load balancers on the way send it too, and
// client-go makes a NotFound of it that names what was asked for. That one is marked by its cause,
// and one made by others lacks the name.
func Absent(err error, resource, name string) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	about := answer.Status().Details
	return about != nil && about.Group == "" && about.Kind == resource && about.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
