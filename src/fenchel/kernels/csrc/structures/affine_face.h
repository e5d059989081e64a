// The affine hull of a few points, by the inverse of its bordered Gram matrix.
//
// For points m_1..m_s with Gram matrix G, [G 1; 1' 0]^-1 = [Q q; q' -nu]. It exists iff the points
// are affinely independent. Q r is the step to the maximum of <r, p> - |M p|^2 / 2 over sum(p) = 0,
// Q is the derivative of that maximum's weights, q the weights of the point nearest to the origin,
// nu its squared norm. A point enters or leaves in O(s^2), by a correction of rank one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fenchel {
namespace FENCHEL_ISA {

class AffineFace {
 public:
  int64_t size() const { return size_; }
  const double* row(int64_t i) const { return matrix_.data() + i * stride_; }

  // Forgets all points but one, of this squared norm.
  void start(double norm2) {
    size_ = 0;
    grow();
    std::fill(matrix_.begin(), matrix_.end(), 0.0);
    std::fill(nearest_.begin(), nearest_.end(), 0.0);
    size_ = 1;
    nearest_[0] = 1.0;
    nu_ = norm2;
  }

  // The squared distance of a point from the hull, from its inner products with the points (room
  // for width() numbers, those beyond the points 0) and its squared norm.
  double distance2(const double* overlaps, double norm2) {
    times(overlaps, coordinates_.data());
    double along = 0, apart = norm2;
    for (int64_t i = 0; i < size_; ++i) {
      coordinates_[i] += nearest_[i];
      along += nearest_[i] * overlaps[i];
      apart -= overlaps[i] * coordinates_[i];
    }
    along_ = along - nu_;
    return apart - along_;
  }

  // The affine coordinates (sum 1) of the foot of the point last asked about.
  const double* coordinates() const { return coordinates_.data(); }

  // That point becomes the last one; its squared distance must not be 0.
  void enter(double distance2) {
    const double scale = 1.0 / distance2;
    const int64_t wide = width();
    double* const a = coordinates_.data();
    a[size_] = -1.0;
    for (int64_t i = 0; i <= size_; ++i) {
      const double factor = scale * a[i];
      double* const out = matrix_.data() + i * stride_;
      for (int64_t j = 0; j < wide; ++j) out[j] += factor * a[j];
    }
    for (int64_t i = 0; i <= size_; ++i) nearest_[i] += scale * along_ * a[i];
    nu_ -= scale * along_ * along_;
    a[size_++] = 0.0;
    if (size_ == stride_) grow();  // width() must fit into a row
  }

  // Point j leaves, and the last one takes its place.
  void leave(int64_t j) {
    const int64_t wide = width(), last = size_ - 1;
    double* const mine = coordinates_.data();
    std::copy(row(j), row(j) + wide, mine);
    const double scale = 1.0 / mine[j], level = nearest_[j];
    for (int64_t i = 0; i < size_; ++i) {
      const double factor = scale * mine[i];
      double* const out = matrix_.data() + i * stride_;
      for (int64_t k = 0; k < wide; ++k) out[k] -= factor * mine[k];
      nearest_[i] -= factor * level;
    }
    nu_ += scale * level * level;
    // Move the last row and column to j, and leave zeros behind.
    double* const q = matrix_.data();
    std::copy(q + last * stride_, q + last * stride_ + wide, q + j * stride_);
    for (int64_t i = 0; i < size_; ++i) {
      q[i * stride_ + j] = q[i * stride_ + last];
      q[i * stride_ + last] = 0.0;
    }
    std::fill(q + last * stride_, q + last * stride_ + wide, 0.0);
    nearest_[j] = nearest_[last];
    nearest_[last] = 0.0;
    std::fill(mine, mine + wide, 0.0);
    size_ = last;
  }

  // out = Q x; both have room for width() numbers, and those beyond the points are 0.
  void times(const double* x, double* out) const {
    const int64_t wide = width();
    std::fill(out, out + wide, 0.0);
    for (int64_t i = 0; i < size_; ++i) {
      const double factor = x[i];
      const double* const from = row(i);
      for (int64_t j = 0; j < wide; ++j) out[j] += factor * from[j];
    }
  }

  // The points' number, and one more, in whole vectors.
  int64_t width() const { return (size_ / kLanes + 1) * kLanes; }

 private:
  static constexpr int64_t kLanes = 8;

  void grow() {
    const int64_t stride = size_ == 0 ? std::max<int64_t>(stride_, 32) : 2 * stride_;
    std::vector<double> matrix(stride * stride, 0.0);
    for (int64_t i = 0; i < size_; ++i) {
      std::copy(row(i), row(i) + size_, matrix.data() + i * stride);
    }
    matrix_.swap(matrix);
    stride_ = stride;
    nearest_.resize(stride, 0.0);
    coordinates_.resize(stride + kLanes, 0.0);
  }

  std::vector<double> matrix_, nearest_, coordinates_;
  int64_t size_ = 0, stride_ = 0;
  double nu_ = 0, along_ = 0;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
