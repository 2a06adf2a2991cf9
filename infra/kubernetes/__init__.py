"""Shapes of Kubernetes objects, and the resources that apply them."""
