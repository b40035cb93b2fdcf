package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Absent reports whether err is the API server's statement that there is no object of that name;
// resource is of the core group. The status 404 alone is not sufficient: proxies and load
// balancers on the path return it too, and client-go makes it a NotFound error with the requested
// name. Such an error has the cause UnexpectedServerResponse, and those of other sources lack the
// name.
func Absent(err error, resource, name string) bool {
	var response apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &response) {
		return false
	}
	about := response.Status().Details
	return about != nil && about.Group == "" && about.Kind == resource && about.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
